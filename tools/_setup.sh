# Shared by the commands in this folder; sourced, never run.
#
# show_help ARGS...     prints the comment at the top of the command and exits, if ARGS ask for help.
# find_python [VERSION] [PATH]
#                       prints a Python: of 3.10 to 3.12, or of VERSION, such as 3.9; looks at
#                       PATH or the variable PYTHON, at names on PATH, and at pyenv's.
# setup_venv EXTRA...   makes .venv (or the one in SETUP_VENV) and installs this package into it,
#                       editable, with the extras; quick when nothing has changed.
# setup_pinned VENV PYTHON REQUIREMENT...
#                       makes another environment with these requirements alone.
# setup_torch VENV      installs PyTorch for processors only (TORCH is its version): 2 minutes.
# setup_browser         installs Chromium from Debian's packages if there is no Chromium.
# setup_prometheus      installs Prometheus in the same way; its service is not started.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
FLOCK="$(type -P flock || true)"  # not on macOS

_say() { printf '[%s] %s\n' "$(basename "$0")" "$*" >&2; }

print_help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

show_help() {
    local argument
    for argument in "$@"; do
        case "$argument" in -h | --help) print_help; exit 0 ;; esac
    done
}

find_python() {
    local wanted="${1:-}" candidate names=(python3.11 python3.12 python3.10 python3 python)
    [ -z "$wanted" ] || names=("python$wanted")
    for candidate in ${2:-${PYTHON:-}} "${names[@]}" \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"${wanted:-3.1[0-2]}".*/bin/python; do
        # An entry of pyenv's on PATH exists for every version and fails for those not chosen.
        if "$candidate" -c "import sys; v = '%d.%d' % sys.version_info[:2]
sys.exit(v not in ('$wanted' or '3.10 3.11 3.12').split())" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    _say "no usable Python. Received: ${2:-$(python3 --version 2>&1)}. Expected: Python" \
         "${wanted:-3.10, 3.11 or 3.12} on PATH, among pyenv's, or in the variable" \
         "PYTHON${wanted//./}."
    return 1
}

# VENV STAMP WANTED [PYTHON] -- PIP ARGUMENTS: installs unless the file STAMP says WANTED.
_install() {
    local venv="$1" stamp="$1/$2" wanted="$3" python="${4:-}"
    shift 5
    if [ ! -x "$venv/bin/python" ]; then
        [ -n "$python" ] || python="$(find_python)" || return 1
        _say "making $(basename "$venv") with $("$python" --version)"
        "$python" -m venv "$venv" || return 1
    fi
    [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
    _say "installing into $(basename "$venv") (the first time takes a minute or two)"
    # One at a time: each writes the package's metadata into the checkout.
    ${FLOCK:+"$FLOCK" "$ROOT/setup.cfg"} \
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || return 1
    printf '%s' "$wanted" > "$stamp"
}

# VENV WANTED EXTRA...: whether a stamp that says WANTED has all of these extras.
_has_extras() {
    local venv="$1" wanted="$2" stamp extra
    shift 2
    for stamp in "$venv"/installed-*; do
        [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] || continue
        for extra in "$@"; do
            [[ ",${stamp##*/installed-}," = *",$extra,"* ]] || continue 2
        done
        return 0
    done
    return 1
}

setup_venv() {
    local extras wanted venv="$ROOT/${SETUP_VENV:-.venv}"
    extras="$(IFS=,; echo "$*")"
    wanted="$(cat "$ROOT"/{setup.cfg,pyproject.toml} | cksum)"
    _has_extras "$venv" "$wanted" "$@" || _install "$venv" "installed-${extras:-none}" "$wanted" \
        "" -- --editable "$ROOT${extras:+[$extras]}" || return 1
    # msrun and subprocesses must find this environment's python first.
    export PATH="$venv/bin:$PATH"
    export VIRTUAL_ENV="$venv"
}

setup_pinned() {
    local venv="$ROOT/$1" python="$2"
    shift 2
    [ -n "$python" ] || return 1
    local wanted="$* $(cksum < "$ROOT/setup.cfg")"
    [ "$(cat "$venv/installed" 2>/dev/null)" = "$wanted" ] || rm -rf "$venv"
    _install "$venv" installed "$wanted" "$python" -- "$@"
}

TORCH="2.13.0+cpu"

setup_torch() {
    local python="$ROOT/$1/bin/python"
    "$python" -c "import importlib.metadata as m; m.version('torch')" 2>/dev/null && return
    _say "installing PyTorch into $1"
    "$python" -m pip install --quiet --disable-pip-version-check "torch==$TORCH" 2>/dev/null ||
        "$python" -m pip install --quiet --disable-pip-version-check torch \
            --index-url https://download.pytorch.org/whl/cpu
}

# PURPOSE COMMANDS PACKAGE...: installs Debian's packages unless all commands are there.
_install_debian() {
    local purpose="$1" commands="$2" sudo=""
    shift 2
    # shellcheck disable=SC2086  # several commands
    type -P $commands >/dev/null && return
    command -v apt-get >/dev/null || { _say "no $commands for $purpose, and no apt-get to install it"; return 1; }
    [ "$(id -u)" = 0 ] || sudo="sudo"
    _say "installing $* for $purpose"
    # In runlevel 1, invoke-rc.d starts no service.
    $sudo apt-get update -qq && $sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

setup_browser() { _install_debian "the browser tests" "chromium chromedriver" chromium chromium-driver; }
setup_prometheus() { _install_debian "the tests of metrics" "prometheus promtool" prometheus; }
