/**
 * Resolves the DNS name that is a gateway's public address. The gateway that owns the name resolves it and publishes
 * the addresses; a gateway of another cluster never resolves a name that somebody else chose, since it would then send
 * packets, and questions to its own name servers, wherever that one likes. The owner sees a new address of its router
 * as soon as its DNS does, and publishes it over the control connection, which does not use the lanes.
 *
 * The name is asked for at an interval, and at once and more often while a link is down. What does not resolve is not
 * gone: the addresses of the last good answer stay, also across a restart.
 */
import { lookup } from 'node:dns/promises'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { MEMBERSHIP_NAME } from '../../model/model.ts'
import { type Prefix, isAddress } from '../../model/addresses/addresses.ts'
import { type Problem, problem, problemText } from '../../model/reasons/reasons.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { type Clock, WakeableSleep, orAborted, withDeadline } from '../../reconcile/reconcile.ts'
import { messageOf, replaceFile } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { GatewayDeps, PublicNameView } from '../world/world.ts'
import { MAX_NAME_ADDRESSES, checkAnswer, rangesOfOwn } from './plan-candidates.ts'

export interface PublicNameInit {
  readonly name: string
  /** The node's private directory, where the last addresses are kept. */
  readonly stateDir: string
  /** Whether a link is not up. */
  readonly isDown: () => boolean
  /** Called after each change of the view. */
  readonly onChange: () => void
}

/** Names at DDNS services have a TTL of about a minute. */
const EVERY_MS = 60_000
/** The first pause while a link is down or the name does not resolve. It doubles up to EVERY_MS. */
const SOON_MS = 5000
/** The shortest time between two questions, however many links change. */
const APART_MS = 1000
const ANSWER_MS = 10_000
const FILE = 'public-name.json'

export class PublicName {
  readonly #deps: Pick<GatewayDeps, 'resolveName'> & PublicNameDeps
  readonly #init: PublicNameInit
  readonly #sleep: WakeableSleep
  #view: PublicNameView
  #isPoked = false
  /** A question that the system resolver has not answered yet. It cannot be ended, and holds a thread of this process. */
  #pending: Promise<readonly string[]> | undefined

  constructor(deps: Pick<GatewayDeps, 'resolveName'> & PublicNameDeps, init: PublicNameInit) {
    this.#deps = deps
    this.#init = init
    this.#sleep = new WakeableSleep(deps.clock)
    this.#view = { name: init.name, addresses: [], isAsked: false }
  }

  get view(): PublicNameView {
    return this.#view
  }

  /** A link went down: the address may be another one now. */
  poke(): void {
    this.#isPoked = true
    this.#sleep.wake()
  }

  /** Asks until the signal. Never throws. */
  async run(signal: AbortSignal): Promise<void> {
    const { isDown, onChange } = this.#init
    this.#view = { ...this.#view, addresses: await this.#kept() }
    if (this.#view.addresses.length > 0) onChange()
    const apart = new WakeableSleep(this.#deps.clock)
    let quickMs = SOON_MS
    try {
      while (!signal.aborted) {
        this.#isPoked = false
        await this.#ask(signal)
        await apart.sleep(APART_MS, signal)
        const isCalm = !isDown() && this.#view.problem === undefined
        if (!this.#wasPoked()) await this.#sleep.sleep(isCalm ? EVERY_MS : quickMs, signal)
        quickMs = isCalm || this.#wasPoked() ? SOON_MS : Math.min(EVERY_MS, 2 * quickMs)
      }
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  /** It changes while run() waits. */
  #wasPoked(): boolean {
    return this.#isPoked
  }

  async #ask(signal: AbortSignal): Promise<void> {
    const { name } = this.#init
    const before = this.#view
    const { addresses, problem: wrong } = await this.#answer(signal)
    signal.throwIfAborted()
    const kept = addresses.length > 0 ? addresses : before.addresses
    this.#view = { name, addresses: kept, isAsked: true, ...(wrong === undefined ? {} : { problem: wrong }) }
    const isOther = kept.join() !== before.addresses.join()
    if (isOther) await this.#keep(kept)
    if (isOther || !before.isAsked || textOf(wrong) !== textOf(before.problem)) this.#report(isOther)
  }

  #report(isOther: boolean): void {
    const { logger } = this.#deps
    const { name, addresses } = this.#view
    // The rounds of the lanes report a problem (plan-lanes.ts).
    if (isOther) logger.info('the public name has other addresses', { name, addresses: addresses.join(', ') })
    this.#init.onChange()
  }

  async #answer(signal: AbortSignal): Promise<ReturnType<typeof checkAnswer>> {
    const { name } = this.#init
    const { clock, resolveName = systemResolver } = this.#deps
    this.#pending ??= resolveName(name).finally(() => {
      this.#pending = undefined
    })
    const pending = this.#pending
    try {
      const answer = await withDeadline(clock, ANSWER_MS, (late) => orAborted(pending, AbortSignal.any([late, signal])))
      return checkAnswer(name, answer, this.#ranges())
    } catch (error) {
      return { addresses: [], problem: problem('PublicNameUnresolved', `${name}: ${whyUnresolved(error)}`) }
    }
  }

  #ranges(): readonly Prefix[] {
    const { api } = this.#deps
    const id = api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clusterId
    const own = id === undefined ? undefined : api.cache('Cluster').get(id)
    // They are checked again where they are published.
    return own === undefined ? [] : rangesOfOwn(own)
  }

  async #kept(): Promise<readonly string[]> {
    try {
      const text = await readFile(join(this.#init.stateDir, FILE), 'utf8')
      const { name, addresses } = JSON.parse(text) as Partial<Record<'name' | 'addresses', unknown>>
      if (name !== this.#init.name || !Array.isArray(addresses)) return []
      const known = addresses.filter((one): one is string => typeof one === 'string' && isAddress(one))
      return known.slice(0, MAX_NAME_ADDRESSES)
    } catch {
      // There is none yet, or it cannot be read: the name server knows the addresses.
      return []
    }
  }

  async #keep(addresses: readonly string[]): Promise<void> {
    const { name, stateDir } = this.#init
    try {
      await mkdir(stateDir, { recursive: true, mode: 0o700 })
      await replaceFile(join(stateDir, FILE), `${JSON.stringify({ name, addresses })}\n`)
    } catch (error) {
      this.#deps.logger.debug('cannot keep the addresses of the public name', { why: messageOf(error) })
    }
  }
}

interface PublicNameDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly api: ClusterApi
}

function textOf(wrong: Problem | undefined): string {
  return wrong === undefined ? '' : problemText(wrong)
}

async function systemResolver(name: string): Promise<readonly string[]> {
  const found = await lookup(name, { all: true })
  return found.map(({ address }) => address)
}

function whyUnresolved(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException
  const texts: Readonly<Record<string, string>> = {
    ENOTFOUND: 'no such name, or it has no address',
    ENODATA: 'it has no address',
    EAI_AGAIN: 'no name server answers',
  }
  return texts[code ?? ''] ?? messageOf(error).slice(0, 200)
}
