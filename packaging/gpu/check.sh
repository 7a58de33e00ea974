#!/usr/bin/env bash
# All checks on a machine with GPUs, with the torch that is there (docs/gpu.md):
#
#   packaging/gpu/check.sh [--python PYTHON] [--wheels FOLDER] [--logs FOLDER] [--mpich] [--seconds 480] [--rehearse]
#                          [--only-setup | --only-check | --only-studies]
#
# makes .venv-gpu over the packages of PYTHON (python3), which has torch; installs what dlscale needs beyond those, from
# the wheels in FOLDER alone where one is given (a node without network); compiles the ring for that Python; and runs
# `make gpu-check`, then studies of all workloads (studies.py) until --seconds are over. Torch is never replaced. The
# MPI is the one on PATH if mpi4py of PYTHON starts there, else, and with --mpich, MPICH's wheel. --rehearse does all of it on
# cores and small networks, but for the tests of tests/gpu: no GPU is needed.
# Logs (logs-gpu): machine.txt, setup.log, check.log, studies.log, records.zip, and the outputs of all ranks. Ends with
# what passed. The same command with the same logs goes on with studies that were interrupted; --only-check and
# --only-studies keep an earlier set-up.
set -euo pipefail

python=python3 wheels="" logs=logs-gpu mpich="" only="" seconds=480 device=gpu preset=paper
while (($#)); do
  case $1 in
    --python) python=$2; shift 2 ;;
    --wheels) wheels=$(realpath "$2"); shift 2 ;;
    --logs) logs=$2; shift 2 ;;
    --mpich) mpich=yes; shift ;;
    --seconds) seconds=$2; shift 2 ;;
    --rehearse) device=cpu preset=tiny; shift ;;
    --only-setup | --only-check | --only-studies) only=${1#--only-}; shift ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 1 ;;
  esac
done
mkdir -p "$logs"
logs=$(realpath "$logs")
cd "$(dirname "$0")/../.."
environment=.venv-gpu
own=$environment/bin/python

fail() { echo "check.sh: $*" >&2; exit 1; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is no Python of at least 3.11; give another: --python"
torch=$("$python" -c 'import torch; print(torch.__version__)') || fail "$python has no torch; give the Python that has it: --python"
echo "torch $torch of $("$python" -c 'import sys; print(sys.executable)') is kept; dlscale is developed with torch $(sed -n 's/^torch==//p' constraints.txt)"

set_up() {
  set -euxo pipefail
  "$python" -m venv --without-pip --system-site-packages $environment
  # Where PYTHON is of an environment itself, the new one sees that environment's packages only if it is told.
  "$python" - "$("$own" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" <<'PYTHON'
import pathlib, site, sys
folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
lines = [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
pathlib.Path(sys.argv[1], "beside.pth").write_text("".join(lines))
PYTHON
  "$own" -m pip --version || "$own" -m ensurepip
  local install=("$own" -m pip install --disable-pip-version-check) pinned=(--constraint constraints.txt)
  [[ ! $wheels ]] || install+=(--no-index --find-links "$wheels") pinned=()
  # What is there stays as it is, if it is new enough; what is missing comes in the version of constraints.txt, or of the
  # given wheels.
  "$own" - "$logs" ${wheels:+"$wheels"} <<'PYTHON'
import importlib.metadata, pathlib, re, sys, tomllib
def there(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
needed += [one for one in project["project"]["optional-dependencies"]["dev"] if re.match("cmake|hypothesis|ninja|pytest>|pytest-timeout", one)]
needed += project["project"]["optional-dependencies"]["grpc"]
logs, *wheels = map(pathlib.Path, sys.argv[1:])
pinned = [] if wheels else [line for line in pathlib.Path("constraints.txt").read_text().split() if "==" in line]
(logs / "needed.txt").write_text("".join(f"{one}\n" for one in needed if not re.match("torch", one)))
(logs / "constraints.txt").write_text(
    "".join(f"{line}\n" for line in pinned if not there(line.split("==")[0])) + f"torch=={there('torch')}\n"
)
PYTHON
  if [[ ! $mpich ]] && command -v mpiexec && command -v mpicxx && "$own" -c 'from mpi4py import MPI'; then
    echo "MPI: the one on PATH"
  else
    "${install[@]}" --no-deps --ignore-installed mpich mpi4py "${pinned[@]}"
  fi
  "${install[@]}" -r "$logs/needed.txt" -c "$logs/constraints.txt"
  PATH=$PWD/$environment/bin:$PATH "${install[@]}" --no-deps --no-build-isolation \
    --config-settings=cmake.define.DLSCALE_WITH_MPI=ON --editable .
}

describe() {
  date -u
  uname -srm
  nvidia-smi || true
  "$own" -VV
  "$own" -m pip list --disable-pip-version-check
}

SECONDS=0
if [[ $only == check || $only == studies ]] && [[ -e $environment/.complete ]]; then
  echo "$environment is that of an earlier set-up"
else
  rm -f $environment/.complete
  # In a shell of its own: bash forgets `set -e` where a status is asked for.
  (set_up) >"$logs/setup.log" 2>&1 &
  wait $! || { tail -25 "$logs/setup.log" >&2; fail "the set-up failed; see $logs/setup.log"; }
  touch $environment/.complete
  echo "set up $environment in $SECONDS s"
fi
describe >"$logs/machine.txt" 2>&1
[[ $only == setup ]] || "$own" -c "import torch, sys; sys.exit(torch.__version__ != '$torch')" || fail "torch is another one in $environment"
[[ $only == setup ]] && exit

outcomes=("set-up: passed")
try() {  # NAME COMMAND...: into NAME.log; what failed does not end the script
  local name=$1 begin=$SECONDS outcome=passed
  "${@:2}" 2>&1 | tee "$logs/$name.log" || outcome=failed
  outcomes+=("$name: $outcome in $((SECONDS - begin)) s")
}
[[ $only == studies ]] || try check timeout $((seconds - SECONDS)) "$own" tests/gpu/check.py "$logs" --device $device
[[ $only == check ]] || try studies "$own" packaging/gpu/studies.py "$logs" --device $device --preset $preset \
  --seconds $((seconds - SECONDS))
printf '%s\n' "${outcomes[@]}"
[[ ${outcomes[*]} != *failed* ]]
