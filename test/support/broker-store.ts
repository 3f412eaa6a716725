/** An operator's commands for the broker of a test: through its admin socket while it runs, otherwise on its state. */
import { writeFile } from 'node:fs/promises'
import { OfflineStates, openState, operatorActor } from '../../broker/admin/command-state.ts'
import { administration } from '../../broker/admin/administration.ts'
import { readStoreConfig } from '../../broker/store/state-directory.ts'
import type { BackupPart, BrokerAdmin } from '../../protocol/admin/admin-api.ts'
import { withAdminClient } from '../../protocol/admin/admin-client.ts'
import { adminSocket, isAdminServed } from '../../protocol/admin/admin-socket.ts'
import { localOperator } from '../../protocol/admin/local-operator.ts'
import { type Clock, SystemClock } from '../../reconcile/clock.ts'

const { signal } = new AbortController()

/**
 * Calls `work` with the operations on the broker's own clusterset, or on another one. Throws what the operation throws.
 */
export async function asOperator<T>(
  stateDir: string,
  clock: Clock,
  work: (admin: BrokerAdmin) => Promise<T>,
  clusterset?: string,
): Promise<T> {
  // The state of a clusterset beside the broker's own is below that of the broker, which serves it.
  const [, broker, name] = /^(.*)\/clustersets\/([^/]+)$/.exec(stateDir) ?? []
  if (broker !== undefined && (await isAdminServed(adminSocket(broker)))) return asOperator(broker, clock, work, name)
  const socket = adminSocket(stateDir)
  const operator = localOperator()
  if (await isAdminServed(socket)) return withAdminClient({ socket, clusterset, operator, signal }, work)
  const states = new OfflineStates(stateDir, clock)
  const deps = { states, stateDir, store: await readStoreConfig(stateDir), clock, signal }
  return work(administration(deps, { clusterset, who: operatorActor(operator) }))
}

/** Writes a backup of the broker into a new file. */
export async function backupOf(stateDir: string, file: string): Promise<void> {
  const parts: Uint8Array[] = []
  const take = (part: BackupPart): Promise<void> => {
    if ('bytes' in part) parts.push(part.bytes)
    return Promise.resolve()
  }
  await asOperator(stateDir, new SystemClock(), (admin) => admin.backup({ knownAs: file }, take))
  await writeFile(file, Buffer.concat(parts), { flag: 'wx' })
}

export interface BrokerStore {
  readonly create: BrokerAdmin['createToken']
  readonly rekey: BrokerAdmin['rekey']
  readonly drain: BrokerAdmin['drain']
  readonly list: BrokerAdmin['tokens']
  readonly revoke: (id: string) => ReturnType<BrokerAdmin['revokeToken']>
  readonly members: BrokerAdmin['members']
  readonly evict: BrokerAdmin['evict']
  readonly changeQuota: (init: Parameters<BrokerAdmin['changeQuota']>[0]) => Promise<boolean>
  readonly waiting: BrokerAdmin['waiting']
  readonly accept: BrokerAdmin['accept']
  readonly refuse: BrokerAdmin['refuse']
  readonly close: () => Promise<void>
}

/** Throws StateError if no broker has ever started with this state. */
export async function openBrokerStore(stateDir: string, clock: Clock): Promise<BrokerStore> {
  if (!(await isAdminServed(adminSocket(stateDir)))) await (await openState(stateDir, clock)).close()
  const as = <T>(work: (admin: BrokerAdmin) => Promise<T>): Promise<T> => asOperator(stateDir, clock, work)
  return {
    create: (init) => as((admin) => admin.createToken(init)),
    rekey: (init) => as((admin) => admin.rekey(init)),
    drain: (init) => as((admin) => admin.drain(init)),
    list: () => as((admin) => admin.tokens()),
    revoke: (id) => as((admin) => admin.revokeToken({ id })),
    members: () => as((admin) => admin.members()),
    evict: (init) => as((admin) => admin.evict(init)),
    changeQuota: (init) => as(async (admin) => (await admin.changeQuota(init)).changed),
    waiting: () => as((admin) => admin.waiting()),
    accept: (init) => as((admin) => admin.accept(init)),
    refuse: (init) => as((admin) => admin.refuse(init)),
    close: () => Promise.resolve(),
  }
}

export interface AuthorityStore {
  readonly status: BrokerAdmin['authority']
  readonly rotate: BrokerAdmin['rotateAuthority']
  readonly finish: BrokerAdmin['finishRotation']
  readonly abort: BrokerAdmin['abortRotation']
  readonly close: () => Promise<void>
}

export function openAuthorityStore(stateDir: string, clock: Clock): Promise<AuthorityStore> {
  const as = <T>(work: (admin: BrokerAdmin) => Promise<T>): Promise<T> => asOperator(stateDir, clock, work)
  return Promise.resolve({
    status: () => as((admin) => admin.authority()),
    rotate: (init) => as((admin) => admin.rotateAuthority(init)),
    finish: (init) => as((admin) => admin.finishRotation(init)),
    abort: () => as((admin) => admin.abortRotation()),
    close: () => Promise.resolve(),
  })
}
