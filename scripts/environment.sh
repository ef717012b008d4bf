# Sourced by the other scripts: makes the virtual environment .venv of this checkout, or brings it up to date.
# Usage: lens_environment EXTRA[,EXTRA …]; afterwards "$VENV/bin" holds python and lens.

VENV="${LENS_VENV:-$PWD/.venv}"

lens_install_packages() {  # Debian packages that are missing; needs root
    missing=""
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    if [ "$(id -u)" != 0 ]; then
        echo "These packages are needed: apt-get install$missing" >&2
        return 1
    fi
    echo "Installing$missing …" >&2
    # Services that a package brings are not started: the tests start what they need themselves.
    policy=/usr/sbin/policy-rc.d
    own=""
    [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && own=yes; }
    status=0
    (apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing) \
        >/dev/null || status=$?
    [ -z "$own" ] || rm -f "$policy"
    return $status
}

lens_listed_packages() {  # the packages of a list: lines PACKAGE, or PACKAGE unless COMMAND (somebody else's is there)
    while read -r package unless command; do
        [ -z "$package" ] && continue
        [ "$unless" = unless ] && command -v "$command" >/dev/null 2>&1 && continue
        echo "$package"
    done <"$1"
}

lens_unpack_packages() {  # Debian packages that exclude installed ones, into $VENV/beside, where they disturb nobody
    [ -e "$VENV/beside/library-path" ] && return 0
    [ "$(id -u)" = 0 ] || { echo "Without root, what needs $* is not tested." >&2; return 0; }
    folder="$VENV/beside.new"
    rm -rf "$folder" "$VENV/beside"
    mkdir -p "$folder/archives/partial"
    apt-get -qq update && apt-get -qq install -y --download-only --no-install-recommends -o "Dir::Cache::archives=$folder/archives" "$@" \
        >/dev/null || return 1
    for archive in "$folder"/archives/*.deb; do dpkg -x "$archive" "$folder"; done
    rm -r "$folder/archives"
    mv "$folder" "$VENV/beside"
    lens_check_libraries "$VENV/beside"
}

lens_check_libraries() {  # FOLDER: what is unpacked there finds its libraries there or in the system; writes library-path
    paths=$(find "$1" -name '*.so*' -exec dirname {} + | sort -u | paste -sd: -)
    missing=$(find "$1" -type f \( -name '*.so*' -o -path '*bin/*' \) -exec env LD_LIBRARY_PATH="$paths" ldd {} + 2>/dev/null |
        sed -n 's/^[[:space:]]*\(.*\) => not found$/\1/p' | sort -u)
    if [ -n "$missing" ]; then
        echo "Unpacked programs lack libraries:" $missing >&2
        return 1
    fi
    echo "$paths" >"$1/library-path"
}

lens_make_venv() {
    python3 -m venv "$VENV" >/dev/null 2>&1 && return 0
    # Debian ships the module in a package of its own.
    lens_install_packages python3-venv && python3 -m venv "$VENV"
}

lens_environment() {
    extras="$1"
    stamp="$VENV/.installed-$(cat pyproject.toml plugins/sources/wandb_hook/pyproject.toml | cksum | tr -d ' ')-$extras"
    # The page's chart library comes with the installation, into the checkout.
    [ -e "$stamp" ] && [ -e lens_core/http/page/static/uplot.js ] && return 0
    if [ ! -x "$VENV/bin/python" ]; then
        lens_make_venv || return 1
    fi
    echo "Installing Lens into $VENV …" >&2
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check \
        -e ./plugins/sources/wandb_hook -e ".[$extras]" && touch "$stamp"
}
