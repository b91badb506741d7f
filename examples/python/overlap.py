import json
import subprocess

command = ["penstock", "overlap", "--json", "--items", "4", "--item-bytes", "8MiB"]
report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
print(f"{report['chunks']} chunks on {report['device']['model']}: "
      f"{report['pipelined_us'] / 1e3:.1f} ms, {report['efficiency']:.0%} of the limit")
