#!/usr/bin/env bash
# setup.sh [--no-python | --fuzz]: installs what the build and the checks need, and nothing that is
# already there; less for the demonstration, or what the fuzzers need.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(build-essential cmake ninja-build pkg-config python3 python3-dev python3-venv git libgtest-dev
  libcli11-dev nlohmann-json3-dev libfmt-dev liburing-dev ccache)
case "${1:-}" in
  --no-python) ;;
  --fuzz) packages+=(clang-19 libclang-rt-19-dev) ;;
  # The second compiler and its standard library; a browser for the tests of the report's page.
  *) packages+=(clang-19 libclang-rt-19-dev llvm-19 libc++-19-dev libc++abi-19-dev
    chromium chromium-driver fonts-dejavu-core) ;;
esac

is_installed() {
  [[ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" == "install ok installed" ]]
}

install_packages() {
  if ! command -v apt-get >/dev/null; then
    echo "setup: this is not Debian or Ubuntu; make sure that these, or their like, are installed:"
    echo "  ${packages[*]}"
    return
  fi
  local missing=() package
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || {
      echo "setup: neither root nor sudo; ask for: apt-get install ${missing[*]}" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The Python tools of the checks, pinned; made again only when the pins change.
install_python_tools() {
  local pins=scripts/requirements.txt venv=build/venv
  cmp -s "$pins" "$venv/installed.txt" && return
  echo "setup: making $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$pins"
  cp "$pins" "$venv/installed.txt"
}

install_packages
(($#)) || install_python_tools
