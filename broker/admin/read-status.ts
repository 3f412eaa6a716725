/**
 * Reads the status of a broker, whether it runs or not: its store, the replicas that serve it, and its state. Changes
 * nothing.
 */
import { open, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { type Clock, withDeadline } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { BrokerFacts, BrokerStatus, LogFacts, ReplicaFacts } from '../../protocol/admin/admin.ts'
import { authorityStatus } from '../identity/identity.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import { AUTHORITY_KEY, DATABASE_FILE, type LogView, SILENT, readStoreConfig } from '../store/store.ts'
import { countWaiting, memberSummaries } from '../members/members.ts'
import { topologyInForce } from '../records/records.ts'
import { missingMembers, planStatus } from './broker-status.ts'
import { type AdminStates, settingsOf } from './command-state.ts'

/** Timeout of one query to one member of etcd. */
const ASK_MS = 5000
const LOCK_FILE = 'broker.lock'

export interface ReadStatusInit {
  readonly stateDir: string
  /** Undefined if the store is the database in the directory. */
  readonly store: EtcdStoreConfig | undefined
  readonly states: AdminStates
  readonly clock: Clock
}

/** Throws StateError if the state directory has no broker state. */
export async function readBrokerStatus(init: ReadStatusInit, signal: AbortSignal): Promise<BrokerStatus> {
  const { stateDir, store, clock } = init
  const facts: Omit<BrokerFacts, 'log'> =
    store === undefined
      ? {
          ...{ kind: 'sqlite', where: join(stateDir, DATABASE_FILE) },
          ...{ replicas: await replicaHere(stateDir), storeMembers: [] },
        }
      : { kind: 'etcd', where: store.url, ...(await etcdFacts(store, clock, signal)) }
  const log =
    missingMembers(facts.storeMembers) > 0
      ? { why: 'the majority of the etcd members does not answer' }
      : await readLog(init)
  return planStatus({ ...facts, log }, clock.now())
}

/**
 * The replicas that serve this state now. Undefined if they cannot be determined. Throws StateError if the state
 * directory cannot be read.
 */
export async function readServing(
  stateDir: string,
  clock: Clock,
  signal: AbortSignal,
): Promise<readonly ReplicaFacts[] | undefined> {
  const config = await readStoreConfig(stateDir)
  return config === undefined ? replicaHere(stateDir) : (await etcdFacts(config, clock, signal)).replicas
}

async function readLog({ states, store, clock }: ReadStatusInit): Promise<BrokerFacts['log']> {
  try {
    return await states.use(undefined, 'read', async (state) => {
      const { log } = state
      await log.refresh()
      const { clusterset } = settingsOf(state)
      return { ...counts(log, clock.now()), clusterset, epoch: log.epoch, revision: log.revision }
    })
  } catch (error) {
    // A directory that never had a broker is a mistake of the caller.
    if (store === undefined && (error as { readonly code?: unknown }).code === 'Absent') throw error
    return { why: messageOf(error) }
  }
}

function counts(log: LogView, nowMs: number): Omit<LogFacts, 'clusterset' | 'epoch' | 'revision'> {
  const row = log.get('authority', AUTHORITY_KEY)
  const authority = row === undefined ? undefined : authorityStatus(log, row, nowMs)
  const { members = [], tokens = [] } = authority?.waitsFor ?? {}
  const signing = authority?.next?.signs === true ? authority.next : authority?.current
  const { mode } = topologyInForce(log).topology
  return {
    ...(mode === 'full' ? {} : { topology: mode }),
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
    const { ino: inode } = await stat(join(stateDir, LOCK_FILE))
    const fileSystem = await fileSystemOf(stateDir).catch(() => undefined)
    const holder = lockHolder(await readFile('/proc/locks', 'utf8'), { fileSystem, inode })
    return holder === undefined ? [] : [{ id: `process ${holder}` }]
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? [] : undefined
  }
}

/**
 * The file system of a folder, as the kernel names it in its list of locks. stat() names another one for a subvolume.
 * The folder is opened and not the lock: closing that would release it if this process is the broker.
 */
async function fileSystemOf(directory: string): Promise<string | undefined> {
  const folder = await open(directory)
  try {
    const info = await readFile(`/proc/self/fdinfo/${folder.fd}`, 'utf8')
    const id = /^mnt_id:\s*(\d+)$/m.exec(info)?.[1] ?? ''
    const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').map((line) => line.split(' '))
    const device = mounts.find(([mount]) => mount === id)?.[2]
    return device
      ?.split(':')
      .map((part) => Number(part).toString(16).padStart(2, '0'))
      .join(':')
  } finally {
    await folder.close()
  }
}

export interface LockedFile {
  /** Major and minor number as in /proc/locks. Undefined if it is not known: a file of any file system counts. */
  readonly fileSystem: string | undefined
  readonly inode: number
}

/**
 * The process that holds the write lock of the file, in the text of /proc/locks. Its lines are, see proc_locks(5):
 * `1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 1073741824 1073742335`.
 */
export function lockHolder(locks: string, { fileSystem, inode }: LockedFile): string | undefined {
  const lines = locks.split('\n').map((line) => line.trim().split(/\s+/))
  const isHeld = (place: string): boolean =>
    fileSystem === undefined ? place.endsWith(`:${inode}`) : place === `${fileSystem}:${inode}`
  return lines.find(([, , , access, , place = '']) => access === 'WRITE' && isHeld(place))?.[4]
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
