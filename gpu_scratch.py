import sys, time, torch
import torch.nn.functional as F
from triton.testing import do_bench
from expacc.functional import exact_error, leaky_expected_error, linear_mixed_expected_error
from expacc.ops import kernels_batch as B, kernels_launch as L, kernels_softmax as S
def step(loss,x,t):
    def run():
        x.grad=None
        loss(x,t).backward()
    return run
med=lambda f,rep=60: do_bench(f,warmup=15,rep=rep,return_mode="median")*1e3
def data(n,c,dt): return torch.randn(n,c,device="cuda").to(dt).requires_grad_(), torch.randint(0,c,(n,),device="cuda")
ORIG=B.launch
def override(**o):
    def l(k,p,d,key,*a,**opt):
        if "maxnreg" in opt:
            opt={**opt,**o}
            if opt["maxnreg"] is None: del opt["maxnreg"]
        return ORIG(k,p,d,key,*a,**opt)
    return l
f32,b16=torch.float32,torch.bfloat16
EX=[]
for w,r in ((4,112),(4,96),(4,80),(4,128),(2,128)): EX.append((65536,1000,f32,("shape",1,128,w,r)))
for g,w,r in ((64,8,None),(32,8,None),(16,4,None),(32,4,None)): EX.append((4096,32768,b16,("long",g,w,r)))
def run_exact(case, compile_only):
    n,c,dt,v=case
    if compile_only: n=min(n,64)
    L._COMPILED.clear()
    x,t=data(n,c,dt)
    if v[0]=="shape":
        B._shape=lambda cc,rr:(v[1],v[2],v[3]); B.launch=override(maxnreg=v[4])
    else:
        def l(k,p,d,key,*a,**opt):
            if k is B.long_rows_kernel:
                a=list(a); a[-3]=v[1]; opt=dict(num_warps=v[2],**({} if v[3] is None else {"maxnreg":v[3]}))
            return ORIG(k,p,d,key,*a,**opt)
        B.launch=l
    f=step(exact_error,x,t); f(); torch.cuda.synchronize()
    if compile_only: return
    full=med(f)
    with torch.no_grad(): fwd=med(lambda:exact_error(x,t))
    print("exact",n,c,v,f"full {full:.1f} fwd-nograd {fwd:.1f}",flush=True)
SM=[]
def run_soft(case, compile_only):
    n,c,dt,o=case
    if compile_only: n=min(n,64)
    L._COMPILED.clear(); S._tile=lambda cc,rr:o
    x,t=data(n,c,dt); f=step(leaky_expected_error,x,t); f(); torch.cuda.synchronize()
    if compile_only: return
    full=med(f)
    with torch.no_grad(): fwd=med(lambda:leaky_expected_error(x,t))
    print("leaky",n,c,o,f"full {full:.1f} fwd {fwd:.1f}",flush=True)
def probe():
    x,t=data(4096,10,f32)
    class P(torch.autograd.Function):
        @staticmethod
        def forward(ctx,x): ctx.save_for_backward(x); return x.new_empty(())
        @staticmethod
        def backward(ctx,g): x,=ctx.saved_tensors; return torch.empty_like(x)
    spent={}
    import expacc.ops.kernels_softmax as KS
    real=KS.rows_backward
    def timed(*a,**k):
        s=time.perf_counter(); r=real(*a,**k); spent.setdefault("inside rows_backward",[]).append(time.perf_counter()-s); return r
    KS.rows_backward=timed
    rl=S.launch
    def tl_(*a,**k):
        s=time.perf_counter(); rl(*a,**k); spent.setdefault("launch",[]).append(time.perf_counter()-s)
    S.launch=tl_
    for name,loss in (("ce",F.cross_entropy),("python node",lambda x,t:P.apply(x)),("leaky",leaky_expected_error),("exact",exact_error)):
        A=[];Bk=[]
        for i in range(400):
            x.grad=None
            if i%20==0: torch.cuda.synchronize()
            s=time.perf_counter(); v=loss(x,t); m=time.perf_counter(); v.backward(); e=time.perf_counter()
            A.append(m-s);Bk.append(e-m)
        A.sort();Bk.sort(); print(f"probe {name}: fwd {A[200]*1e6:.1f}us bwd {Bk[200]*1e6:.1f}us",flush=True)
    for k,v in spent.items(): v.sort(); print("probe",k,f"{v[len(v)//2]*1e6:.1f}us")
    KS.rows_backward=real; S.launch=rl
if sys.argv[1]=="compile":
    k,n=int(sys.argv[2]),int(sys.argv[3])
    for i,case in enumerate(EX+SM):
        if i%n==k:
            try: (run_exact if i<len(EX) else run_soft)(case,True)
            except Exception as e: print("FAIL",case,repr(e)[:300])
else:
    for n,c,dt in ((4096,10,f32),(4096,100,f32),(4096,1000,f32),(65536,1000,f32),(4096,32768,b16)):
        x,t=data(n,c,dt); print("ce",n,c,f"{med(step(F.cross_entropy,x,t)):.1f}")
    try: probe()
    except Exception as e: print("probe failed",repr(e))
    tile,shape=S._tile,B._shape
    for case in SM:
        try: run_soft(case,False)
        except Exception as e: print("FAIL",case,repr(e)[:300])
    S._tile=tile
    for case in EX:
        try: run_exact(case,False)
        except Exception as e: print("FAIL",case,repr(e)[:300])
