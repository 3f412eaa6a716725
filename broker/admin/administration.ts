/**
 * What an operator does at this broker: BrokerAdmin on the states of its clustersets. A running broker serves it on its
 * admin socket; while none runs, the command line uses it on the state itself. What needs certificates is loaded on
 * demand, as most commands do not.
 */
import { createReadStream } from 'node:fs'
import { open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { randomBytes } from 'node:crypto'
import { type BackupPart, type BrokerAdmin, BACKUP_PART, type StagedRestore } from '../../protocol/admin/admin.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { sealaneVersion } from '../../runtime/runtime.ts'
import type { AuthorityCommands } from './authority-commands.ts'
import { ClustersetCommands } from './clusterset-commands.ts'
import type { AdminStates, CommandInit, StateUse } from './command-state.ts'
import { MemberCommands } from './member-commands.ts'
import { readBrokerStatus } from './read-status.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import { type AuditActor, makeStateDir } from '../store/store.ts'

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
    rekey: (init) => members('change', (one) => one.rekey(init)),
    changeQuota: (init) => members('change', (one) => one.changeQuota(init)),
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
      const { verifyState } = await import('../recovery/verify-store.ts')
      return verifyState(await states.directoryOf(clusterset), clock.now())
    },
    backup: (init, take) => giveBackup(deps, { clusterset, who }, { ...init, take }),
    stageRestore: (init, parts) => takeRestore(deps, { clusterset, who }, init, parts),
  }
}

/** In the broker's own directory, which no other user can read and which has room for a file as large as the state. */
function temporaryFile(stateDir: string): string {
  return join(stateDir, `.backup.${randomBytes(6).toString('hex')}`)
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
    await backupBroker(clock, stateDir, file, { knownAs, who, warn: (text) => void warnings.push(text) })
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
    const handle = await open(file, 'wx', 0o600)
    try {
      for await (const bytes of parts) await handle.write(bytes)
    } finally {
      await handle.close()
    }
    await stageRestore(clock, stateDir, file, { force, who, warn: (text) => void warnings.push(text) })
    return { warnings }
  } finally {
    await rm(file, { force: true })
  }
}
