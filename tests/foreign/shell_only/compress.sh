#!/bin/sh
# How small does gzip make a text?  ./compress.sh --level 6 --kib 64
while [ $# -gt 1 ]; do
  case "$1" in
    --level) level="$2" ;;
    --kib) kib="$2" ;;
  esac
  shift 2
done
seq 1 100000 | head -c "$((kib * 1024))" > numbers.txt
gzip -"$level" -c numbers.txt > numbers.gz
before=$(wc -c < numbers.txt)
after=$(wc -c < numbers.gz)
echo "bytes before: $before"
awk "BEGIN { printf \"ratio=%.4f\\n\", $after / $before }"
