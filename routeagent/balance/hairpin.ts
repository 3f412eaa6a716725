/**
 * Hairpin mode of the bridge ports of this node's backends, on sites without Kubernetes. A backend whose connection is
 * balanced to itself gets its packets back by the port that they came from. If netfilter sees the bridge
 * (bridge-nf-call-iptables), the bridge itself forwards them, and drops them without the mode. Only the port of a backend
 * of a clusterset service is changed. What was changed is recorded in a file, and set back once the port has no such
 * backend any more, or Sealane leaves. The record has the boot id, since a port that is made again has the default.
 */
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { type BridgePort, type BridgePorts, type Sysctl, hairpinCommand } from '../../kernel/tuning/tuning.ts'
import { type Clock, ReconcileLoop } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { LOOP_TIMING, type RouteAgentMetrics, loopDeps } from '../world/world.ts'

/** A port that was changed for a backend with this address. */
export interface ChangedPort {
  readonly address: string
  readonly port: string
  readonly index: number
}

export interface HairpinPlan {
  /** The ports to change. */
  readonly set: readonly string[]
  /** The ports to set back. */
  readonly restore: readonly ChangedPort[]
  /** The new record. */
  readonly record: readonly ChangedPort[]
}

/**
 * `local` are the addresses of backends that need the mode; `behind` are the ports of those that are known. A port that
 * had the mode before stays as it is: another program or the user chose it. An address whose port is not known at the
 * moment keeps its record. Pure.
 */
export function planHairpin(
  local: ReadonlySet<string>,
  behind: ReadonlyMap<string, BridgePort>,
  before: readonly ChangedPort[],
): HairpinPlan {
  const isOf = (one: ChangedPort, { name, index }: BridgePort): boolean => one.port === name && one.index === index
  const kept = before.filter((one) => {
    const port = behind.get(one.address)
    return local.has(one.address) && (port === undefined || isOf(one, port))
  })
  const found = [...behind].filter(
    ([address, port]) => local.has(address) && (!port.hairpin || before.some((one) => isOf(one, port))),
  )
  const added = found
    .filter(([address]) => !kept.some((one) => one.address === address))
    .map(([address, { name, index }]): ChangedPort => ({ address, port: name, index }))
  const record = [...kept, ...added].sort((a, b) => (a.address < b.address ? -1 : 1))
  const isNeeded = ({ port, index }: ChangedPort): boolean =>
    record.some((one) => one.port === port && one.index === index)
  const restore = before.filter((one) => !isNeeded(one))
  return {
    set: [...new Set(found.flatMap(([, { name, hairpin }]) => (hairpin ? [] : [name])))].sort(),
    restore: [...new Map(restore.map((one) => [one.port, one])).values()],
    record,
  }
}

export interface HairpinDeps {
  readonly bridgePorts: BridgePorts
  readonly sysctl: Sysctl
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
}

/** A backend that has said nothing yet is looked for again after this time, so often; then at the usual interval. */
const AGAIN_MS = 3000
const MOST_AGAIN = 20
const BRIDGE_NETFILTER = 'net/bridge/bridge-nf-call-iptables'

export class HairpinLoop {
  readonly #deps: HairpinDeps
  readonly #file: string
  readonly #local: () => ReadonlySet<string> | undefined
  readonly #loop: ReconcileLoop
  #stopAgain: (() => void) | undefined
  #again = 0
  #failure: string | undefined
  /** The record as it was last read or written: no other process writes it. */
  #record: readonly ChangedPort[] | undefined
  /** After a failure the record is read again, and the last one counts while that fails. */
  #isRecordOld = true
  /** The last round found no backend and no record, and no other one is under way. */
  #isIdle = false

  /** `local` returns the addresses of this node's backends. Undefined while they are not known. */
  constructor(deps: HairpinDeps, file: string, local: () => ReadonlySet<string> | undefined) {
    this.#deps = deps
    this.#file = file
    this.#local = local
    // The round reports its failures, each once.
    const silent = { ...loopDeps(deps, 'hairpin'), onError: () => undefined }
    this.#loop = new ReconcileLoop(silent, LOOP_TIMING, () => this.#round())
  }

  /** The backends have changed. Most nodes have none, and their services change many times a second. */
  poke(): void {
    if (this.#isIdle && this.#local()?.size === 0) return
    this.#again = 0
    this.#loop.poke()
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#stopAgain?.()
  }

  async #round(): Promise<void> {
    this.#isIdle = false
    const local = this.#local()
    if (local === undefined) return
    const { logger } = this.#deps
    try {
      const waits = await this.#apply(local)
      this.#isIdle = local.size === 0 && this.#record?.length === 0
      this.#failure = undefined
      this.#stopAgain?.()
      if (!waits || this.#again >= MOST_AGAIN) return
      this.#again += 1
      this.#stopAgain = this.#deps.clock.setTimer(AGAIN_MS, () => this.#loop.poke())
    } catch (error) {
      this.#isRecordOld = true
      const why = messageOf(error)
      if (why !== this.#failure)
        logger.warn('a bridge port is not in hairpin mode: a pod does not reach itself by its service', {
          reason: 'HairpinOff',
          why,
        })
      this.#failure = why
      // The loop tries again.
      throw error
    }
  }

  /** Throws the system's error if the record has never been read. */
  async #before(): Promise<readonly ChangedPort[]> {
    if (this.#record !== undefined && !this.#isRecordOld) return this.#record
    try {
      this.#record = await readRecord(this.#deps.sysctl, this.#file)
      this.#isRecordOld = false
    } catch (error) {
      if (this.#record === undefined) throw error
    }
    return this.#record
  }

  async #write(record: readonly ChangedPort[]): Promise<void> {
    await writeRecord(this.#deps.sysctl, this.#file, record)
    this.#record = record
  }

  /** Returns true if the port of a backend is not known yet. Throws KernelError. */
  async #apply(all: ReadonlySet<string>): Promise<boolean> {
    const { bridgePorts, sysctl, logger } = this.#deps
    const before = await this.#before()
    if (all.size === 0 && before.length === 0) return false
    const isSeen = (await sysctl.read(BRIDGE_NETFILTER))?.trim() === '1'
    const local: ReadonlySet<string> = isSeen ? all : new Set()
    if (local.size === 0 && before.length === 0) return false
    const behind = await bridgePorts.behind(local)
    const { set, restore, record } = planHairpin(local, behind, before)
    if (set.length > 0) await this.#write(record)
    for (const name of set) {
      await bridgePorts.setHairpin(name, true)
      logger.info('a bridge port was changed, so that its pod reaches itself by its service', {
        command: hairpinCommand(name, true),
      })
    }
    for (const one of restore) await setBack(this.#deps, one)
    if (restore.length > 0 || record.length !== before.length) await this.#write(record)
    this.#record = record
    return behind.size < local.size
  }
}

/** Sets every changed port back. Throws KernelError, and the system's error if the record cannot be read. */
export async function restoreHairpin(
  deps: Pick<HairpinDeps, 'bridgePorts' | 'sysctl' | 'logger'>,
  file: string,
): Promise<void> {
  for (const one of await readRecord(deps.sysctl, file)) await setBack(deps, one)
  for (const path of [file, nextOf(file)]) await rm(path, { force: true })
}

async function setBack(
  { bridgePorts, logger }: Pick<HairpinDeps, 'bridgePorts' | 'logger'>,
  { port, index }: ChangedPort,
): Promise<void> {
  const now = await bridgePorts.port(port)
  if (now?.index !== index || !now.hairpin) return
  await bridgePorts.setHairpin(port, false)
  logger.info('a bridge port was set back', { command: hairpinCommand(port, false) })
}

// The record: a JSON file of this node.

const BOOT_ID = 'kernel/random/boot_id'

async function bootOf(sysctl: Sysctl): Promise<string> {
  return (await sysctl.read(BOOT_ID))?.trim() ?? ''
}

/** Empty if there is none, if it is of another boot, or damaged. Throws the system's error if it cannot be read. */
async function readRecord(sysctl: Sysctl, file: string): Promise<readonly ChangedPort[]> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '{}'
    throw error
  })
  const { boot, ports } = parseRecord(text)
  return boot === (await bootOf(sysctl)) && Array.isArray(ports) ? ports.filter(isChangedPort) : []
}

function parseRecord(text: string): { readonly boot?: unknown; readonly ports?: unknown } {
  try {
    return (JSON.parse(text) ?? {}) as object
  } catch {
    return {}
  }
}

function isChangedPort(value: unknown): value is ChangedPort {
  const { address, port, index } = (value ?? {}) as Partial<Record<keyof ChangedPort, unknown>>
  const isName = typeof port === 'string' && /^[^/\s]{1,15}$/.test(port) && port !== '.' && port !== '..'
  return typeof address === 'string' && isName && Number.isInteger(index)
}

/** Where the next record is written. The name is always the same, so that a failure is told once. */
function nextOf(file: string): string {
  return `${file}.new`
}

async function writeRecord(sysctl: Sysctl, file: string, ports: readonly ChangedPort[]): Promise<void> {
  if (ports.length === 0) return rm(file, { force: true })
  await mkdir(dirname(file), { recursive: true, mode: 0o700 })
  // A full disk must not take the record of before.
  const next = nextOf(file)
  await writeFile(next, JSON.stringify({ boot: await bootOf(sysctl), ports }), { mode: 0o600 })
  await rename(next, file)
}
