# Sourced by ./start and ./check: sees that this machine will do, and installs into .venv when something changed.
# Needs ROOT (the checkout, absolute) and ME (the command's name for messages). POSIX sh.

unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
VENV="$ROOT/.venv"

refuse() { # one line why, then lines on what to do; nothing was changed
  printf '%s\n' "$@" >&2
  exit 1
}

# What to type to install Python with venv and pip; $1 is the Debian package of the venv module.
how_to_install() {
  family=
  [ -r /etc/os-release ] && family=$(. /etc/os-release && printf '%s %s' "${ID:-}" "${ID_LIKE:-}")
  case " $family " in
    *" debian "* | *" ubuntu "*) echo "  sudo apt install python3 python3-pip $1" ;;
    *" fedora "* | *" rhel "*) echo "  sudo dnf install python3 python3-pip" ;;
    *" arch "*) echo "  sudo pacman -S python" ;;
    *)
      echo "  Debian, Ubuntu:  sudo apt install python3 python3-pip $1"
      echo "  Fedora:          sudo dnf install python3 python3-pip"
      echo "  Arch:            sudo pacman -S python"
      ;;
  esac
}

need_linux() {
  [ "$(uname -s)" = Linux ] ||
    refuse "Shiftwork runs on Linux only (a container or WSL2 will do); this is $(uname -s)."
  release=$(uname -r)
  major=${release%%.*}
  rest=${release#*.}
  minor=${rest%%[!0-9]*}
  case "$major$minor" in *[!0-9]* | '') return ;; esac
  if [ "$major" -lt 5 ] || { [ "$major" -eq 5 ] && [ "$minor" -lt 13 ]; }; then
    refuse "Shiftwork needs Linux 5.13 or later; this kernel is $release."
  fi
}

need_writable() {
  probe="$ROOT/.probe-$$"
  if (: > "$probe") 2>/dev/null; then
    rm -f "$probe"
  else
    owner=$(ls -ld "$ROOT" | awk '{print $3}')
    refuse "Cannot write to $ROOT (owner $owner, you are $(id -un 2>/dev/null || id -u))." \
      "Clone into a folder of your own, or change its owner, then run $ME again."
  fi
}

# Sets PY to the first Python >= 3.11 that can make a virtual environment with pip in it.
find_python() {
  without_venv=
  for name in ${PYTHON:-} python3.13 python3.12 python3.11 python3 python3.14; do
    command -v "$name" > /dev/null 2>&1 || continue
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1 || continue
    if "$name" -c 'import venv, ensurepip' > /dev/null 2>&1; then
      PY=$name
      return
    fi
    without_venv=${without_venv:-$name}
  done
  if [ -n "$without_venv" ]; then
    number=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    refuse "Python $number is here, but not its modules venv and ensurepip. Install them:" \
      "$(how_to_install "python$number-venv")" "Then run $ME again."
  fi
  found=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || true
  refuse "Shiftwork needs Python 3.11 or later; $([ -n "$found" ] && echo "python3 here is $found" || echo "none was found"). Install it:" \
    "$(how_to_install python3-venv)" "Then run $ME again."
}

venv_works() {
  "$VENV/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1
}

# What an installation depends on: the lock, the packaging, the place, and the Python in .venv.
fingerprint() {
  { cat "$ROOT/pyproject.toml" "$ROOT/requirements.lock" "$ROOT/$1"; echo "$ROOT"; "$VENV/bin/python" -V; } | cksum
}

# install LOCK: bring .venv to what LOCK pins. Quick when nothing changed since the last time.
install() {
  stamp="$VENV/.installed-$1"
  if venv_works && [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint "$1")" ]; then
    return
  fi
  need_writable
  if ! venv_works; then
    find_python
    echo "Making .venv with $("$PY" -V) …" >&2
    "$PY" -m venv --clear "$VENV" || refuse "Could not make $VENV (see above)."
  fi
  echo "Installing what $1 pins into .venv (a minute or two, only when something changed) …" >&2
  rm -f "$stamp" "$VENV/.installed-requirements.lock"
  { "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install -qq -r "$ROOT/$1" &&
    "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install -qq --no-deps -e "$ROOT"; } ||
    refuse "Installing failed (see above). Is there a network? Then run $ME again; what is there is used again."
  fingerprint requirements.lock > "$VENV/.installed-requirements.lock" # every lock holds that one
  fingerprint "$1" > "$stamp"
}
