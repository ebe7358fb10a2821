#!/bin/sh
# Install each given distribution into an empty environment, away from the checkout, and try what a newcomer would.
#   PYTHON=python3.11 sh tests/packaging/try_dist.sh dist/l2caf-0.1.0-py3-none-any.whl dist/l2caf-0.1.0.tar.gz
set -eu
constraints=$(pwd)/constraints.txt
for distribution in "$@"; do
  distribution=$(cd "$(dirname "$distribution")" && pwd)/$(basename "$distribution")
  away=$(mktemp -d)
  trap 'rm -rf "$away"' EXIT
  "${PYTHON:-python3}" -m venv "$away/venv"
  "$away/venv/bin/python" -m pip install --quiet --constraint "$constraints" "$distribution"
  cd "$away"
  unset PYTHONPATH
  venv/bin/python -m pip check
  case "$(venv/bin/python -c 'import l2caf; print(l2caf.__file__)')" in
    "$away"/*) ;;
    *) echo "l2caf was not imported from the new environment" >&2; exit 1 ;;
  esac
  venv/bin/l2caf --version
  venv/bin/l2caf networks >/dev/null
  venv/bin/l2caf demo --out demo
  test "$(find demo -name '*.png' -size +1k | wc -l)" -ge 3
  echo "$(basename "$distribution"): installed and tried"
  cd /
  rm -rf "$away"
done
