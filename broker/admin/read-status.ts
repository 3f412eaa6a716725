/**
 * Reads the status of a broker, whether it runs or not: its store, the replicas that serve it, and its state. Changes
 * nothing.
 */
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { type Clock, withDeadline } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { authorityStatus } from '../identity/identity.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import { AUTHORITY_KEY, DATABASE_FILE, type LogView, SILENT, openBeside, readStoreConfig } from '../store/store.ts'
import { countWaiting, memberSummaries } from '../members/members.ts'
import {
  type BrokerFacts,
  type BrokerStatus,
  type LogFacts,
  type ReplicaFacts,
  planStatus,
  missingMembers,
} from './broker-status.ts'

/** Timeout of one query to one member of etcd. */
const ASK_MS = 5000
const LOCK_FILE = 'broker.lock'

/** Throws StateError if the state directory cannot be read, or has no broker state. */
export async function readBrokerStatus(stateDir: string, clock: Clock, signal: AbortSignal): Promise<BrokerStatus> {
  const config = await readStoreConfig(stateDir)
  const file = join(stateDir, DATABASE_FILE)
  const facts: Omit<BrokerFacts, 'log'> =
    config === undefined
      ? { kind: 'sqlite', where: file, replicas: await replicaHere(stateDir), storeMembers: [] }
      : { kind: 'etcd', where: config.url, ...(await etcdFacts(config, clock, signal)) }
  const log =
    missingMembers(facts.storeMembers) > 0
      ? { why: 'no majority of etcd answers' }
      : await readLog(stateDir, clock, config === undefined)
  return planStatus({ ...facts, log }, clock.now())
}

/**
 * The replicas that serve this state now. Undefined if they cannot be determined. Throws StateError as
 * readBrokerStatus() does.
 */
export async function readServing(
  stateDir: string,
  clock: Clock,
  signal: AbortSignal,
): Promise<readonly ReplicaFacts[] | undefined> {
  const config = await readStoreConfig(stateDir)
  return config === undefined ? replicaHere(stateDir) : (await etcdFacts(config, clock, signal)).replicas
}

async function readLog(stateDir: string, clock: Clock, isOwn: boolean): Promise<BrokerFacts['log']> {
  try {
    const opened = await openBeside(stateDir, clock)
    try {
      const { log, settings } = opened
      const { clusterset } = settings
      return { ...counts(log, clock.now()), clusterset, epoch: log.epoch, revision: log.revision }
    } finally {
      await opened.close()
    }
  } catch (error) {
    // A directory that never had a broker is a mistake of the caller.
    if (isOwn && (error as { readonly code?: unknown }).code === 'Absent') throw error
    return { why: messageOf(error) }
  }
}

function counts(log: LogView, nowMs: number): Omit<LogFacts, 'clusterset' | 'epoch' | 'revision'> {
  const row = log.get('authority', AUTHORITY_KEY)
  const authority = row === undefined ? undefined : authorityStatus(log, row, nowMs)
  const { members = [], tokens = [] } = authority?.waitsFor ?? {}
  const signing = authority?.next?.signs === true ? authority.next : authority?.current
  return {
    records: log.count('record'),
    members: memberSummaries(log, nowMs).flatMap(({ id, state }) =>
      state === 'in contact' || state === 'silent' ? [{ id, state }] : [],
    ),
    waiting: countWaiting(log, nowMs),
    authority: {
      phase: authority?.phase ?? 'steady',
      ...(signing === undefined ? {} : { until: signing.notAfter }),
      waitsFor: members.length + tokens.length,
    },
  }
}

/** Reads the lock's holder from the kernel: trying the lock would block a broker that starts at that moment. */
async function replicaHere(stateDir: string): Promise<readonly ReplicaFacts[] | undefined> {
  try {
    const { ino } = await stat(join(stateDir, LOCK_FILE))
    const locks = await readFile('/proc/locks', 'utf8')
    const holder = locks.split('\n').find((line) => isWriteLockOf(line, ino))
    return holder === undefined ? [] : [{ id: `process ${holder.trim().split(/\s+/)[4] ?? ''}` }]
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? [] : undefined
  }
}

/** `1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 1073741824 1073742335`, see proc_locks(5). */
function isWriteLockOf(line: string, inode: number): boolean {
  const [, , , access, , place = ''] = line.trim().split(/\s+/)
  return access === 'WRITE' && place.endsWith(`:${inode}`)
}

async function etcdFacts(
  config: EtcdStoreConfig,
  clock: Clock,
  signal: AbortSignal,
): Promise<Pick<BrokerFacts, 'replicas' | 'storeMembers'>> {
  const { connectEtcd, readReplicas, readStoreMembers } = await import('./etcd-status.ts')
  const deps = { clock, logger: SILENT }
  const storeMembers = await readStoreMembers(deps, config, ASK_MS, signal)
  const store = connectEtcd(deps, config)
  try {
    const replicas = await withDeadline(clock, ASK_MS, (late) => readReplicas(store, AbortSignal.any([signal, late])))
    return { storeMembers, replicas }
  } catch {
    // The failure is reported with the log.
    return { storeMembers, replicas: undefined }
  } finally {
    store.client.close()
  }
}
