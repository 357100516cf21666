import torch
from expacc.functional import exact_error, leaky_expected_error
for n,c in ((3,1),(5,3),(7,33),(2,9001)):
    for loss in (leaky_expected_error, exact_error):
        x=torch.randn(n,c,device="cuda",requires_grad=True); t=torch.randint(0,c,(n,),device="cuda"); t[0]=-100; t[1]=c+5
        loss(x,t).backward()
torch.cuda.synchronize(); print("ran")
