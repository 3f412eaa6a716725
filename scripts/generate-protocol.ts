/**
 * `npm run proto`: writes protocol/gen from protocol/broker.proto with Debian's protoc and the npm package ts-proto.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { requirePackages } from './install-system-packages.ts'

const ROOT = join(import.meta.dirname, '..')

const OPTIONS = [
  'outputServices=grpc-js',
  'outputClientImpl=false',
  'outputJsonMethods=false',
  'outputPartialMethods=false',
  'oneof=unions-value',
  'forceLong=number',
  'esModuleInterop=true',
  'importSuffix=.ts',
  'env=node',
  'useExactTypes=false',
  'annotateFilesWithVersion=false',
]

/** Writes broker.ts into `folder`. Throws with what protoc said. */
export function generateProtocol(folder: string): void {
  const args = [
    `--plugin=${join(ROOT, 'node_modules/.bin/protoc-gen-ts_proto')}`,
    `--ts_proto_out=${folder}`,
    `--ts_proto_opt=${OPTIONS.join(',')}`,
    `--proto_path=${join(ROOT, 'protocol')}`,
    'broker.proto',
  ]
  const done = spawnSync('protoc', args, { encoding: 'utf8' })
  if (done.status !== 0) throw new Error(`protoc: ${done.error?.message ?? done.stderr}`)
}

if (import.meta.main) {
  requirePackages('proto')
  generateProtocol(join(ROOT, 'protocol', 'gen'))
}
