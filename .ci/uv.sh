# Source this file for `make_uv`. uv installs a whole environment in seconds, where pip needs minutes.

# pip_setting NAME: print a setting of pip, from its environment variable or its configuration files.
pip_setting() {
  local variable="PIP_${1^^}"
  variable=${variable//-/_}
  echo "${!variable:-$(python3 -m pip config get "global.$1" 2> /dev/null || true)}" | xargs
}

# make_uv FOLDER: make the command uv available; if it is not installed, install it into an environment in FOLDER. uv does
# not read the configuration of pip, which may contain the address of PyTorch for CPUs, so it gets pip's indexes and links
# as variables.
make_uv() {
  if ! command -v uv > /dev/null; then
    python3 -m venv "$1"
    "$1/bin/python" -m pip install --quiet uv
    mkdir "$1/command" && ln -s "$1/bin/uv" "$1/command/uv"
    export PATH="$PATH:$1/command"
  fi
  local links indexes
  links=$(pip_setting find-links) indexes=$(pip_setting extra-index-url)
  export UV_INDEX_STRATEGY=unsafe-best-match  # the newest version in all indexes, as with pip
  [ -z "$links" ] || export UV_FIND_LINKS=${UV_FIND_LINKS:-${links// /,}}
  [ -z "$indexes" ] || export UV_EXTRA_INDEX_URL=${UV_EXTRA_INDEX_URL:-$indexes}
}
