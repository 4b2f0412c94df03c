"""."""
import json
from benchmarks.openai_batch.files import files
from benchmarks.stage import stage
import sys
with stage("") as on:
    print(json.dumps(files(on, int(sys.argv[1]), int(sys.argv[2]), 64)))
