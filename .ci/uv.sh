# Source this file for `make_uv`. uv installs a whole environment in seconds, where pip needs minutes.

# pip_setting NAME: what pip is configured to use, from its environment variable or its files.
pip_setting() {
  local variable="PIP_${1^^}"
  variable=${variable//-/_}
  echo "${!variable:-$(python3 -m pip config get "global.$1" 2> /dev/null || true)}" | xargs
}

# make_uv FOLDER: make the command uv available, from an environment in FOLDER unless uv is installed. uv does not read the
# configuration of pip, which may say where PyTorch for CPUs is, so it gets the same indexes and links as variables.
make_uv() {
  if ! command -v uv > /dev/null; then
    python3 -m venv "$1"
    "$1/bin/python" -m pip install --quiet uv
    mkdir "$1/command" && ln -s "$1/bin/uv" "$1/command/uv"
    export PATH="$PATH:$1/command"
  fi
  local links indexes
  links=$(pip_setting find-links) indexes=$(pip_setting extra-index-url)
  export UV_INDEX_STRATEGY=unsafe-best-match  # the newest version of all indexes, as pip takes
  [ -z "$links" ] || export UV_FIND_LINKS=${UV_FIND_LINKS:-${links// /,}}
  [ -z "$indexes" ] || export UV_EXTRA_INDEX_URL=${UV_EXTRA_INDEX_URL:-$indexes}
}
