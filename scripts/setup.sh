#!/usr/bin/env bash
# setup.sh [GROUP...]: installs what these groups need, or all of them, and nothing that is already there.
#   build    compilers, CMake and libraries
#   python   the pinned Python tools of the checks, in build/venv
#   clang    the compiler of the sanitizers and fuzzers
#   test     what the tests need besides: a second standard library, and a browser for the report's page
set -euo pipefail
cd "$(dirname "$0")/.."

groups=("$@")
(($#)) || groups=(build python clang test)
# Ubuntu's archive has no browser. The file then says so, and the tests of the report's page are skipped.
browser=(chromium chromium-driver)
no_browser=build/no_browser.txt

packages=() python=
for group in "${groups[@]}"; do
  case $group in
    build) packages+=(build-essential cmake ninja-build pkg-config python3 python3-dev git libgtest-dev
      libcli11-dev nlohmann-json3-dev libfmt-dev liburing-dev ccache) ;;
    python) packages+=(python3 python3-venv git) python=yes ;;
    clang) packages+=(clang-19 libclang-rt-19-dev) ;;
    test)
      packages+=(llvm-19 libc++-19-dev libc++abi-19-dev fonts-dejavu-core "${browser[@]}")
      rm -f "$no_browser"
      ;;
    *)
      echo "setup: expected build, python, clang or test, got '$group'" >&2
      exit 2
      ;;
  esac
done

is_installed() {
  [[ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" == "install ok installed" ]]
}

is_in_archive() {
  LC_ALL=C apt-cache policy "$1" | grep -q '^ *Candidate: [^(]'
}

# Sets `missing`: those of `packages` that are not installed, without a browser that cannot be.
find_missing() {
  local package
  missing=()
  for package in $(printf '%s\n' "${packages[@]}" | sort -u); do
    is_installed "$package" && continue
    if [[ " ${browser[*]} " == *" $package "* && $lists == known ]] && ! is_in_archive "$package"; then
      mkdir -p "${no_browser%/*}"
      echo "the archive of this system's packages has no $package" >"$no_browser"
      continue
    fi
    missing+=("$package")
  done
}

install_packages() {
  if ! command -v apt-get >/dev/null; then
    echo "setup: this is not Debian or Ubuntu; make sure that these, or their like, are installed:"
    echo "  ${packages[*]}"
    return
  fi
  local missing lists=unknown as_root=()
  [[ -z "$(apt-cache madison build-essential 2>/dev/null)" ]] || lists=known
  find_missing
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null || {
      echo "setup: neither root nor sudo; ask for: apt-get install ${missing[*]}" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  lists=known
  find_missing
  ((${#missing[@]})) || return 0
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Made again only when the pins change.
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
if [[ " ${groups[*]} " == *" test "* && -f $no_browser ]]; then
  echo "setup: $(<"$no_browser"); without another browser and its driver, the tests of the report's page" \
    "are skipped"
fi
[[ -z $python ]] || install_python_tools
