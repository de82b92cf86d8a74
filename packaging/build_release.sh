#!/usr/bin/env bash
# Builds what a release has into dist/, and checks it: sdist, wheel, gpumon.pyz, an SBOM (CycloneDX) of the versions in it, and
# checksums. PYTHON chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf dist

"${PYTHON:-python3}" -m venv "$work/build"
"$work/build/bin/pip" install --quiet build twine cyclonedx-bom
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) "$work/build/bin/python" -m build --outdir dist .
"$work/build/bin/twine" check --strict dist/*
"$work/build/bin/python" packaging/build_pyz.py dist/*.whl --output dist/gpumon.pyz

# Without pip, so that the SBOM has only what belongs to gpumon.
"${PYTHON:-python3}" -m venv --without-pip "$work/clean"
"$work/build/bin/pip" --python "$work/clean" install --quiet --constraint packaging/pyz-requirements.txt dist/*.whl
(cd "$work" && clean/bin/gpumon selftest --demo)
(cd "$work" && XDG_CACHE_HOME="$work/cache" clean/bin/python -I "$OLDPWD/dist/gpumon.pyz" --version)
"$work/build/bin/cyclonedx-py" environment --pyproject pyproject.toml --output-reproducible --validate \
  --output-file dist/gpumon.cdx.json "$work/clean/bin/python"

(cd dist && sha256sum -- * > SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
ls -l dist
