/**
 * Stores the replica on disk, so that an agent that starts while the broker is unreachable knows everything from
 * before, and later requests only the difference. The file is replaced atomically.
 */
import { createHash } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { type RecordKind, recordKeyText } from '../../model/model.ts'
import { replaceFile } from '../../runtime/runtime.ts'
import { CodecError, count, list, parseWire, storedFromWire, storedToWire, text, texts } from '../codec/codec.ts'
import * as wire from '../gen/broker.ts'
import * as limits from '../protocol.ts'
import { Replica } from './record-replica.ts'

const MAGIC = Buffer.from('sealane-replica-1\n')
const CHECKSUM_BYTES = 32
/**
 * Records of these kinds are in a separate field, so that an agent of an earlier version can read the file after a
 * downgrade.
 */
const LATER_KINDS: readonly RecordKind[] = ['MemberStatus', 'Topology']
const MAX_FILE_BYTES = 1024 * 1024 * 1024

export interface ReplicaStore {
  /**
   * Returns an empty replica if nothing was saved. Throws CodecError for a damaged file, or the error of the file
   * system.
   */
  load(): Promise<Replica>
  save(replica: Replica): Promise<void>
}

export function encodeReplica(replica: Replica): Uint8Array {
  const entries = [...replica.records]
  const isLater = ([, record]: (typeof entries)[number]): boolean => LATER_KINDS.includes(record.body.kind)
  const first = entries.filter((entry) => !isLater(entry))
  const later = entries.filter(isLater)
  const toWire = ([, record]: (typeof entries)[number]) => storedToWire(record)
  const position = { epoch: replica.epoch ?? '', revision: replica.revision }
  const { scope, exported = [] } = replica
  const payload = wire.SavedReplica.encode({
    ...(scope === undefined ? position : { epoch: '', revision: 0 }),
    scope: scope === undefined ? undefined : { ...position, namespaces: [...scope], exported: [...exported] },
    records: first.map(toWire),
    later: later.map(toWire),
    unconfirmed: [...first, ...later].flatMap(([key], i) => (replica.unconfirmed.has(key) ? [i] : [])),
    complete: [...replica.complete],
    departed: [...replica.departed],
  }).finish()
  return Buffer.concat([MAGIC, createHash('sha256').update(payload).digest(), payload])
}

/** Throws CodecError. */
export function decodeReplica(bytes: Uint8Array): Replica {
  const start = MAGIC.length + CHECKSUM_BYTES
  if (bytes.length < start || !MAGIC.equals(bytes.subarray(0, MAGIC.length))) {
    throw new CodecError('replica', 'not a replica file of this version')
  }
  const payload = bytes.subarray(start)
  if (!createHash('sha256').update(payload).digest().equals(bytes.subarray(MAGIC.length, start))) {
    throw new CodecError('replica', 'its checksum is wrong: it is truncated or damaged')
  }
  const saved = parseWire('replica', payload, MAX_FILE_BYTES, (b) => wire.SavedReplica.decode(b))
  const records = [
    ...list(saved.records, 'records', limits.MAX_SAVED_RECORDS, storedFromWire),
    ...list(saved.later, 'later', limits.MAX_SAVED_RECORDS, storedFromWire),
  ]
  const { scope } = saved
  const position = scope ?? saved
  const names = (list: readonly string[], field: string): string[] =>
    texts(list, `scope.${field}`, limits.MAX_EXPORTED_NAMESPACES, limits.MAX_NAME)
  return new Replica({
    epoch: text(position.epoch, 'epoch', limits.MAX_NAME),
    revision: count(position.revision, 'revision'),
    ...(scope === undefined
      ? {}
      : { scope: names(scope.namespaces, 'namespaces'), exported: names(scope.exported, 'exported') }),
    records,
    unconfirmed: saved.unconfirmed.flatMap((i) => {
      const record = records[i]
      return record === undefined ? [] : [recordKeyText(record.key)]
    }),
    complete: texts(saved.complete, 'complete', limits.MAX_OWNERS),
    departed: texts(saved.departed, 'departed', limits.MAX_CLUSTERS),
  })
}

/** Returns the store for `path`. save() creates the directory with mode 0700 if it does not exist. */
export function replicaFile(path: string): ReplicaStore {
  return {
    async load() {
      const bytes = await readFile(path).catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
        throw error
      })
      return bytes === undefined ? new Replica() : decodeReplica(bytes)
    },
    async save(replica) {
      // A replica without a snapshot has nothing to save, and its file would claim that there was one.
      if (!replica.synced) return
      await mkdir(dirname(path), { recursive: true, mode: 0o700 })
      await replaceFile(path, encodeReplica(replica))
    },
  }
}
