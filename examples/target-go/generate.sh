#!/usr/bin/env bash
# Generates pb/ from the .proto files. Needs protoc-gen-go and protoc-gen-go-grpc on the PATH:
#   go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
#   go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
set -euo pipefail
cd "$(dirname "$0")"
module=logplayer.example/target/pb
flags=()
for plugin in go go-grpc; do
  flags+=("--${plugin}_out=pb" "--${plugin}_opt=module=$module")
  for proto in entry target; do flags+=("--${plugin}_opt=Mlogplayer/v1/$proto.proto=$module"); done
done
../../.venv/bin/python -m grpc_tools.protoc -I ../../src/logplayer/wire "${flags[@]}" logplayer/v1/entry.proto logplayer/v1/target.proto
