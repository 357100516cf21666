T="timeout 165 python3 -m pytest -q -x --no-header -p no:cacheprovider tests/gpu/test_kernels_cuda.py"
i=0
for d in "float32" "bfloat16" "float16 and not bfloat16"; do for c in "10 or 100 or 1000" "257 or 8192 or 32769 or 50257"; do
i=$((i+1)); $T -k "mixtures and ($d) and ($c)" > /tmp/t$i.log 2>&1 &
i=$((i+1)); $T -k "exact_equals and ($d) and ($c)" > /tmp/t$i.log 2>&1 &
done; done
timeout 165 python3 -m pytest -q --no-header -p no:cacheprovider tests/gpu/test_kernels_cuda.py -k "not mixtures and not exact_equals" > /tmp/t13.log 2>&1 &
timeout 165 python3 -m pytest -q --no-header -p no:cacheprovider tests/gpu/test_losses_cuda.py > /tmp/t14.log 2>&1 &
timeout 165 compute-sanitizer --tool memcheck python3 gpu_sanitize.py > /tmp/t15.log 2>&1 &
for k in 0 1; do timeout 165 python3 gpu_scratch.py compile $k 2 > /tmp/c$k.log 2>&1 & done
wait
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo "== t$i" >> $OUT/tests.log; tail -60 /tmp/t$i.log >> $OUT/tests.log; echo "t$i $(tail -1 /tmp/t$i.log | cut -c1-200)"; done
cp /tmp/t13.log $OUT/t13.log
cat /tmp/c*.log
