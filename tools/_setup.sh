# Shared by the commands in this folder; sourced, never run.
#
# setup_venv EXTRA...   makes .venv from a bare Python (3.10 to 3.12) and installs this
#                       package into it with the extras named; quick when nothing changed.
#                       VENV=.venv-docs setup_venv docs takes another environment.
# setup_browser         installs Chromium from Debian's packages if there is no Chromium.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

_say() { printf '[%s] %s\n' "$(basename "$0")" "$*" >&2; }

_find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.10 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' \
            2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    _say "no usable Python. Received: $(python3 --version 2>&1). Expected: Python 3.10, 3.11 or 3.12" \
         "on PATH, or in the variable PYTHON."
    return 1
}

setup_venv() {
    local python extras stamp wanted venv="${VENV:-.venv}"
    extras="$(IFS=,; echo "$*")"
    if [ ! -x "$ROOT/$venv/bin/python" ]; then
        python="$(_find_python)" || return 1
        _say "making $venv with $("$python" --version)"
        "$python" -m venv "$ROOT/$venv" || return 1
    fi
    # msrun and subprocesses must find this environment's python first.
    export PATH="$ROOT/$venv/bin:$PATH"
    export VIRTUAL_ENV="$ROOT/$venv"
    wanted="$(cat "$ROOT/setup.cfg" "$ROOT/pyproject.toml" | cksum)"
    stamp="$ROOT/$venv/installed-${extras:-none}"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        _say "installing rec_summary[$extras] (the first time takes a minute or two)"
        python -m pip install --quiet --disable-pip-version-check \
            --editable "$ROOT${extras:+[$extras]}" || return 1
        printf '%s' "$wanted" > "$stamp"
    fi
}

setup_browser() {
    command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo"
    command -v apt-get >/dev/null || { _say "no Chromium, and no apt-get to install it"; return 1; }
    _say "installing Chromium for the browser tests"
    $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        $sudo apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null
}
