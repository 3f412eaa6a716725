/**
 * `npm run proto`: writes the generated code beside each .proto, with Debian's protoc and the npm package ts-proto.
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

export interface ProtocolSource {
  /** From the root of the project. */
  readonly folder: string
  /** Of the .proto, without its ending; the generated file has the same. */
  readonly name: string
}

/** What is generated: between agent and broker, and between broker and etcd. */
export const PROTOCOL_SOURCES: readonly ProtocolSource[] = [
  { folder: 'protocol', name: 'broker' },
  { folder: 'broker/store/etcd/client', name: 'etcd' },
]

/** Writes `<name>.ts` into `target`. Throws with what protoc said. */
export function generateProtocol({ folder, name }: ProtocolSource, target: string): void {
  const args = [
    `--plugin=${join(ROOT, 'node_modules/.bin/protoc-gen-ts_proto')}`,
    `--ts_proto_out=${target}`,
    `--ts_proto_opt=${OPTIONS.join(',')}`,
    `--proto_path=${join(ROOT, folder)}`,
    `${name}.proto`,
  ]
  const done = spawnSync('protoc', args, { encoding: 'utf8' })
  if (done.status !== 0) throw new Error(`protoc: ${done.error?.message ?? done.stderr}`)
}

if (import.meta.main) {
  requirePackages('proto')
  for (const source of PROTOCOL_SOURCES) generateProtocol(source, join(ROOT, source.folder, 'gen'))
}
