/**
 * What an operator does at this broker: BrokerAdmin on the states of its clustersets. A running broker serves it on its
 * admin socket; while none runs, the command line uses it on the state itself. What needs certificates is loaded on
 * demand, as most commands do not.
 */
import { createReadStream } from 'node:fs'
import { open, rm, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { type BackupPart, type BrokerAdmin, BACKUP_PART, type StagedRestore } from '../../protocol/admin/admin.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { sealaneVersion, temporaryPath } from '../../runtime/runtime.ts'
import type { AuthorityCommands } from './authority-commands.ts'
import { ClustersetCommands } from './clusterset-commands.ts'
import { type AdminStates, type CommandInit, type StateUse, settingsOf } from './command-state.ts'
import { MemberCommands } from './member-commands.ts'
import { readBrokerStatus } from './read-status.ts'
import { RelayCommands } from './relay-commands.ts'
import type { TopologyCommands } from './topology-commands.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import { type AuditActor, StateError, attempt, makeStateDir } from '../store/store.ts'

export interface AdministrationDeps {
  readonly states: AdminStates
  /** The state directory of the broker, and its store as it is configured. */
  readonly stateDir: string
  readonly store: EtcdStoreConfig | undefined
  readonly clock: Clock
  readonly signal: AbortSignal
}

export interface AdministrationInit {
  /** Undefined for the broker's own clusterset. */
  readonly clusterset: string | undefined
  readonly who: AuditActor
}

export function administration(deps: AdministrationDeps, { clusterset, who }: AdministrationInit): BrokerAdmin {
  const { states, clock, signal } = deps
  const on = <T>(mode: StateUse, work: (init: CommandInit) => Promise<T>, which = clusterset): Promise<T> =>
    states.use(which, mode, (state) => work({ state, clock, who, signal }))
  const members = <T>(mode: StateUse, work: (commands: MemberCommands) => Promise<T>): Promise<T> =>
    on(mode, (init) => work(new MemberCommands(init)))
  const authority = <T>(mode: StateUse, work: (commands: AuthorityCommands) => Promise<T>): Promise<T> =>
    on(mode, async (init) => {
      const { AuthorityCommands } = await import('./authority-commands.ts')
      return work(new AuthorityCommands(init))
    })
  const topology = <T>(mode: StateUse, work: (commands: TopologyCommands) => Promise<T>): Promise<T> =>
    on(mode, async (init) => {
      // Its schemas are loaded with the first call.
      const { TopologyCommands } = await import('./topology-commands.ts')
      return work(new TopologyCommands(init))
    })
  const relays = <T>(mode: StateUse, work: (commands: RelayCommands) => Promise<T>): Promise<T> =>
    on(mode, (init) => work(new RelayCommands(init)))
  const clustersets = <T>(mode: StateUse, work: (commands: ClustersetCommands) => Promise<T>): Promise<T> =>
    states.use(undefined, mode, (state) => work(new ClustersetCommands({ state, clock, who, signal }, states)))
  return {
    version: () => Promise.resolve({ version: sealaneVersion() }),
    status: () => readBrokerStatus(deps, signal),
    tokens: () => members('read', (one) => one.list()),
    createToken: (init) => members('change', (one) => one.create(init)),
    revokeToken: (init) => members('change', (one) => one.revoke(init)),
    members: () => members('read', (one) => one.members()),
    evict: (init) => members('change', (one) => one.evict(init)),
    drain: (init) => members('change', (one) => one.drain(init)),
    rekey: (init) => members('change', (one) => one.rekey(init)),
    changeQuota: (init) => members('change', (one) => one.changeQuota(init)),
    accessDefault: () => members('read', (one) => one.accessDefault()),
    setAccessDefault: (init) => members('change', (one) => one.setAccessDefault(init)),
    topology: () => topology('read', (one) => one.show()),
    planTopology: (init) => topology('read', (one) => one.plan(init)),
    setTopology: (init) => topology('change', (one) => one.set(init)),
    relays: () => relays('read', (one) => one.list()),
    addRelay: (init) => relays('change', (one) => one.add(init)),
    removeRelay: (init) => relays('change', (one) => one.remove(init)),
    published: () =>
      on('read', async ({ state }) => {
        const { publishedNow } = await import('./read-published.ts')
        const published = await publishedNow(state.log, clock, signal)
        settingsOf(state)
        return published
      }),
    waiting: () => members('read', (one) => one.waiting()),
    accept: (init) => members('change', (one) => one.accept(init)),
    refuse: (init) => members('change', (one) => one.refuse(init)),
    authority: () => authority('read', (one) => one.status()),
    rotateAuthority: (init) => authority('change', (one) => one.rotate(init)),
    finishRotation: (init) => authority('change', (one) => one.finish(init)),
    abortRotation: () => authority('change', (one) => one.abort()),
    clustersets: () => clustersets('read', (one) => one.list()),
    createClusterset: (init) => clustersets('change', (one) => one.create(init)),
    removeClusterset: (init) => clustersets('change', (one) => one.remove(init)),
    verify: async () => {
      const { verifyInThread } = await import('../recovery/state-thread.ts')
      return verifyInThread(await states.directoryOf(clusterset), clock.now())
    },
    backup: (init, take) => giveBackup(deps, { clusterset, who }, { ...init, take }),
    stageRestore: (init, parts) => takeRestore(deps, { clusterset, who }, init, parts),
  }
}

/**
 * In the broker's own directory, which has room for a file as large as the state. A broker that was killed leaves it, and
 * removes it when it starts.
 */
function temporaryFile(stateDir: string): string {
  return temporaryPath(join(stateDir, 'backup'))
}

async function giveBackup(
  { states, clock }: AdministrationDeps,
  { clusterset, who }: AdministrationInit,
  { knownAs, take }: { readonly knownAs: string; readonly take: (part: BackupPart) => Promise<void> },
): Promise<void> {
  const { backupBroker } = await import('../recovery/backup.ts')
  const stateDir = await states.directoryOf(clusterset)
  const file = temporaryFile(stateDir)
  const warnings: string[] = []
  try {
    const log = states.served(clusterset)?.log
    await backupBroker(clock, stateDir, file, { knownAs, who, log, warn: (text) => void warnings.push(text) })
    for await (const bytes of createReadStream(file, { highWaterMark: BACKUP_PART }) as AsyncIterable<Buffer>)
      await take({ bytes })
    for (const warning of warnings) await take({ warning })
  } finally {
    await rm(file, { force: true })
  }
}

async function takeRestore(
  { states, clock }: AdministrationDeps,
  { clusterset, who }: AdministrationInit,
  { force }: { readonly force: boolean },
  parts: AsyncIterable<Uint8Array>,
): Promise<StagedRestore> {
  const { stageRestore } = await import('../recovery/restore.ts')
  const stateDir = await states.directoryOf(clusterset)
  await makeStateDir(stateDir)
  const file = temporaryFile(stateDir)
  const warnings: string[] = []
  try {
    await receive(stateDir, file, parts)
    const log = states.served(clusterset)?.log
    await stageRestore(clock, stateDir, file, { force, who, log, warn: (text) => void warnings.push(text) })
    return { warnings }
  } finally {
    await rm(file, { force: true })
  }
}

/** Room that a broker keeps for its own writes. */
const KEPT_BYTES = 64 << 20
/** How much is received between two looks at the room. */
const LOOK_BYTES = 8 << 20

/** Throws StateError (Full) where the file and its copy would leave the broker no room, and the error of `parts`. */
async function receive(stateDir: string, file: string, parts: AsyncIterable<Uint8Array>): Promise<void> {
  const handle = await attempt(file, 'cannot be written', () => open(file, 'wx', 0o600))
  let [received, looked] = [0, -LOOK_BYTES]
  try {
    for await (const bytes of parts) {
      if (received - looked >= LOOK_BYTES) {
        const { bavail, bsize } = await statfs(stateDir)
        // It is copied once more when it is staged.
        if (bavail * bsize < KEPT_BYTES + received) throw noRoom(stateDir, received)
        looked = received
      }
      // Unlike write(), this goes on until all is written.
      await attempt(file, 'cannot be written', () => handle.appendFile(bytes))
      received += bytes.length
    }
  } finally {
    await handle.close()
  }
}

function noRoom(stateDir: string, received: number): StateError {
  const text = `${stateDir} has no room for this backup, of which ${received} bytes were received: nothing was changed`
  return new StateError('Full', stateDir, text)
}
