"""open_exports.py LIST - opens GGUF files with llama.cpp and compares their logits, for python/tests/test_quantize.py.

A line of LIST is JSON: name, file, and tokens, rows and logits of architectures.jsonl (null: the file is only opened). Prints a line for each
file that is wrong. Exit status 77: this Python has no llama-cpp-python.
"""
import json
import sys

try:
    import llama_cpp
    import numpy
except (ImportError, OSError, RuntimeError) as e:
    print(f"no llama-cpp-python: {e}")
    sys.exit(77)


def fault(j):
    try:
        model = llama_cpp.Llama(model_path=j["file"], n_ctx=512, n_threads=1, logits_all=True, verbose=False)
    except ValueError as e:
        return f"llama.cpp does not open it: {e}"
    if j["logits"] is None:
        return None
    model.eval(j["tokens"])
    expected = numpy.array(j["logits"])
    found = numpy.array(model.scores)[j["rows"], : expected.shape[1]]
    # llama.cpp keeps keys and values in 16 bits, and the file has matrices of BF16.
    worst = numpy.abs(found - expected).max() / expected.std()
    print(f"    {j['name']}: largest difference {worst:.3f} of the standard deviation", file=sys.stderr)
    return None if worst < 0.2 else f"its logits differ by {worst:.3f} of their standard deviation"


wrong = 0
for line in open(sys.argv[1]):
    j = json.loads(line)
    why = fault(j)
    wrong += why is not None
    if why is not None:
        print(f"{j['name']}: {why}")
sys.exit(wrong > 0)
