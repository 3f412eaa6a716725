/**
 * Gives this gateway a new identity when an operator requests it or it is due (plan-rotation.ts). The Endpoint
 * announces the next identity. After the far ends confirm that they know it, this node notifies them through the
 * tunnel, and both ends change within some milliseconds.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Notice, NoticeStep } from '../../kernel/probing/probing.ts'
import { CONDITION_KEYS_ROTATED, type ConditionFinding, type Node, endpointName } from '../../model/model.ts'
import { ANNOTATION_ROTATE_KEYS, CAPABILITY_FOLLOWS_KEYS } from '../../model/lanes/lanes.ts'
import { DEFAULT_LOOP, ReconcileLoop } from '../../reconcile/reconcile.ts'
import { replaceFile } from '../../runtime/runtime.ts'
import type { CableRotation } from '../cable/cable.ts'
import type { Probing } from '../health/health.ts'
import { type LaneLoop, readMembership } from '../lanes/lanes.ts'
import type { PlannedLink } from '../links/links.ts'
import { type GatewayConfig, type GatewayDeps, healthKey, loopDeps } from '../world/world.ts'
import { Following, identityMark } from './peer-rotation.ts'
import { POSTPONED_MS, type RotationFacts, type RotationWait, isDue, planRotation } from './plan-rotation.ts'

// The rotation that an operator requested by the Node's annotation, and the last one that was done. The annotation text
// only distinguishes requests, so the clocks of two machines are never compared.

const MAX_REQUEST = 64

/** Undefined if none is requested. */
function askedRotation(node: Node | undefined): string | undefined {
  const text = node?.metadata.annotations?.[ANNOTATION_ROTATE_KEYS]?.slice(0, MAX_REQUEST)
  return text === '' ? undefined : text
}

/** The last request that was served. Undefined if there is none. */
async function servedRotation(stateDir: string): Promise<string | undefined> {
  try {
    return await readFile(pathIn(stateDir), 'utf8')
  } catch {
    return undefined
  }
}

/** Throws the system's error. */
async function noteServedRotation(stateDir: string, request: string): Promise<void> {
  await replaceFile(pathIn(stateDir), request)
}

function pathIn(stateDir: string): string {
  return join(stateDir, 'rotated-for')
}

export interface RotationInit {
  readonly config: GatewayConfig
  readonly rotation: CableRotation
  readonly probing: Pick<Probing, 'notify' | 'health'>
  readonly lanes: Pick<LaneLoop, 'plan' | 'poke'>
  readonly following: () => Pick<Following, 'isExpected'>
  /** Called when the value of `report` has changed. */
  readonly onChange: () => void
}

/** Interval of the checks and of the notices to far ends. */
const LOOK_MS = 1000
/** How long the far ends have to confirm that they are ready. */
const READY_MS = 2000
const ASK_MS = 50
/** Delay that lets the last notice leave before the key changes. */
const LAST_WORD_MS = 2
const LAST_WORDS = 3
const never = new AbortController().signal
/** After this time the node stops waiting for far ends that are not ready. They find the new key by themselves. */
const NOT_READY_MS = 5 * 60_000
/** After this node has changed its key, it does not follow other changes for this long. */
const CALM_MS = 1000

export class RotationLoop {
  readonly #deps: GatewayDeps
  readonly #init: RotationInit
  readonly #loop: ReconcileLoop
  #announced: { readonly identity: string; readonly atMs: number } | undefined
  #dueSinceMs: number | undefined
  #pausedUntilMs = -Infinity
  #switchingUntilMs = -Infinity
  /** Since when this node asks the far ends that know the next identity whether they are ready. */
  #askingSinceMs: number | undefined
  /** healthKey()s of the links whose far ends have sent a receipt, by step. */
  readonly #receipts = new Map<NoticeStep, Set<string>>()
  #report: ConditionFinding | undefined

  constructor(deps: GatewayDeps, init: RotationInit) {
    this.#deps = deps
    this.#init = init
    const timing = { ...DEFAULT_LOOP, resyncMs: LOOK_MS }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'key rotation'), timing, (signal) => this.#round(signal))
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  /** The identity that the Endpoint announces. Undefined: none. */
  get nextIdentity(): string | undefined {
    return this.#announced?.identity
  }

  get isSwitching(): boolean {
    return this.#deps.clock.monotonic() < this.#switchingUntilMs
  }

  /** State of the rotation. Undefined if none was due since the start. */
  get report(): ConditionFinding | undefined {
    return this.#report
  }

  onReceipt(key: string, { mark, step }: Notice): void {
    if (this.#announced === undefined || identityMark(this.#announced.identity) !== mark) return
    this.#receiptsOf(step).add(key)
  }

  async #round(signal: AbortSignal): Promise<void> {
    const facts = await this.#facts()
    if (facts === undefined) return
    this.#dueSinceMs = isDue(facts) ? facts.dueSinceMs : undefined
    const step = planRotation(facts)
    switch (step.is) {
      case 'rest':
        this.#announce(undefined)
        break
      case 'announce':
        this.#announce(await this.#init.rotation.makeNext(facts.lane))
        break
      case 'wait':
        if (this.#announced !== undefined) this.#notify(this.#links('up'), 'known')
        this.#say('False', step)
        break
      case 'postpone':
        this.#pausedUntilMs = facts.nowMs + POSTPONED_MS
        this.#announce(undefined)
        this.#deps.logger.warn('key rotation is postponed', { reason: step.reason, why: step.message })
        this.#say('False', step)
        break
      case 'switch':
        this.#askingSinceMs ??= facts.nowMs
        if (this.#isLate() || !this.#init.following().isExpected) await this.#switch(facts.lane, signal)
    }
  }

  /** A far end may announce a change of its own without end, or become silent. */
  #isLate(): boolean {
    return this.#deps.clock.monotonic() - (this.#askingSinceMs ?? Infinity) >= NOT_READY_MS
  }

  #announce(identity: string | undefined): void {
    if (identity === this.#announced?.identity) return
    const atMs = this.#deps.clock.monotonic()
    this.#announced = identity === undefined ? undefined : { identity, atMs }
    this.#receipts.clear()
    this.#askingSinceMs = undefined
    this.#init.lanes.poke()
  }

  async #switch(lane: number, signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#deps
    const { rotation, lanes, config } = this.#init
    this.#switchingUntilMs = clock.monotonic() + READY_MS + CALM_MS
    try {
      const known = this.#links('follows')
      const ready = await this.#readyOf(known, signal)
      const keys = this.#isLate() ? ready : known
      if (ready.size < keys.size) {
        this.#say('False', { reason: 'KeyAnnounced', message: 'not all remote gateways are ready for the next key' })
        // A far end may change its key at the same moment. The random delay keeps both from staying in step.
        this.#switchingUntilMs = -Infinity
        await clock.sleep(clock.random() * 2 * LOOK_MS, signal)
        return
      }
      const asked = this.#asked()
      if (asked !== undefined) await noteServedRotation(config.stateDir, asked)
      const devices = lanes.plan?.lanes.lanes ?? []
      const followers = devices.flatMap(({ links }) =>
        links.filter(({ remoteLane, cluster }) => keys.has(healthKey(remoteLane, cluster))),
      )
      const remoteLanes = devices.map(({ remoteLane }) => remoteLane)
      await rotation.takeNext(lane, remoteLanes, followers, async () => {
        signal.throwIfAborted()
        for (let i = 0; i < LAST_WORDS; i += 1) this.#notify(keys, 'now')
        // From here on the far ends change their keys, so this wait ignores the signal.
        await clock.sleep(LAST_WORD_MS, never)
      })
      logger.info('this gateway has rotated its key', { lane, links: keys.size })
    } finally {
      if (this.#switchingUntilMs > 0) this.#switchingUntilMs = clock.monotonic() + CALM_MS
    }
    this.#announce(undefined)
    this.#say('True', { reason: 'KeyRotated', message: 'the gateway has rotated its key' })
  }

  /** The links whose far ends confirm within READY_MS that they are ready. */
  async #readyOf(keys: ReadonlySet<string>, signal: AbortSignal): Promise<ReadonlySet<string>> {
    const { clock } = this.#deps
    const ready = this.#receiptsOf('soon')
    ready.clear()
    const untilMs = clock.monotonic() + READY_MS
    for (;;) {
      const missing = new Set([...keys].filter((key) => !ready.has(key)))
      if (missing.size === 0 || clock.monotonic() >= untilMs) return new Set([...keys].filter((key) => ready.has(key)))
      this.#notify(missing, 'soon')
      await clock.sleep(ASK_MS, signal)
    }
  }

  /** healthKey()s of the links that are up, or only of those whose far ends know the next identity. */
  #links(which: 'up' | 'follows'): ReadonlySet<string> {
    const rows = this.#linkRows().filter(({ up, follows, knows }) => up && (which === 'up' || (follows && knows)))
    return new Set(rows.map(({ key }) => key))
  }

  #linkRows() {
    const { probing, lanes } = this.#init
    const health = probing.health()
    const known = this.#receiptsOf('known')
    return (lanes.plan?.lanes.lanes ?? []).flatMap(({ links }) =>
      links.map((link) => {
        const key = healthKey(link.remoteLane, link.cluster)
        const up = health.get(key)?.state === 'up'
        return { key, cluster: link.cluster, up, follows: this.#canFollow(link), knows: known.has(key) }
      }),
    )
  }

  #canFollow({ endpoint }: PlannedLink): boolean {
    const { spec } = this.#deps.api.cache('Endpoint').get(endpoint) ?? {}
    return spec?.capabilities.includes(CAPABILITY_FOLLOWS_KEYS) === true
  }

  async #facts(): Promise<RotationFacts | undefined> {
    const { config, rotation, lanes } = this.#init
    const { api, clock } = this.#deps
    const [own] = config.lanes
    const cluster = readMembership(api)?.spec.clusterId
    if (own === undefined || cluster === undefined || lanes.plan === undefined) return undefined
    const { lane } = own
    const nowMs = clock.monotonic()
    const asked = this.#asked()
    const endpoints = api.cache('Endpoint').list()
    const name = endpointName(cluster, config.node, lane)
    const published = endpoints.find(({ metadata }) => metadata.name === name)
    const others = endpoints.filter(({ spec, metadata }) => spec.cluster === cluster && metadata.name !== name)
    const announces = others.filter((one) => this.#deps.cable.rules.nextIdentityOf(one) !== undefined)
    return {
      nowMs,
      ageMs: await rotation.ageMs(lane),
      maxAgeMs: config.keyMaxAgeMs,
      asked: asked !== undefined && asked !== (await servedRotation(config.stateDir)),
      begun: (await rotation.next(lane)) !== undefined,
      dueSinceMs: this.#dueSinceMs ?? nowMs,
      ...(this.#announced === undefined ? {} : { announcedMs: this.#announced.atMs }),
      published:
        published !== undefined && this.#deps.cable.rules.nextIdentityOf(published) === this.#announced?.identity,
      pausedUntilMs: this.#pausedUntilMs,
      others: announces.map(({ spec }) => spec.lane).sort((a, b) => a - b),
      lane,
      links: this.#linkRows(),
    }
  }

  #asked(): string | undefined {
    return askedRotation(this.#deps.api.cache('Node').get(this.#init.config.node))
  }

  #receiptsOf(step: NoticeStep): Set<string> {
    const known = this.#receipts.get(step)
    if (known !== undefined) return known
    const fresh = new Set<string>()
    this.#receipts.set(step, fresh)
    return fresh
  }

  #notify(keys: ReadonlySet<string>, step: NoticeStep): void {
    if (this.#announced !== undefined)
      this.#init.probing.notify(keys, { mark: identityMark(this.#announced.identity), step })
  }

  #say(status: 'True' | 'False', { reason, message }: Pick<RotationWait, 'reason' | 'message'>) {
    const next = { type: CONDITION_KEYS_ROTATED, status, reason, message }
    if (JSON.stringify(next) === JSON.stringify(this.#report)) return
    this.#report = next
    this.#init.onChange()
  }
}

// Both sides of a key rotation in one process: this gateway's own, and the ones of far ends.

interface Renewal {
  readonly loop: RotationLoop
  readonly following: Following
}

/** Undefined if the cable has no keys to rotate. The caller runs the loop. */
export function startRenewal(
  deps: GatewayDeps,
  init: Omit<RotationInit, 'rotation' | 'following'>,
  signal: AbortSignal,
): Renewal | undefined {
  const { rotation } = deps.cable
  if (rotation === undefined) return undefined
  const loop: RotationLoop = new RotationLoop(deps, { ...init, rotation, following: () => following })
  const following: Following = new Following(
    {
      clock: deps.clock,
      logger: deps.logger,
      rotation,
      lanes: () => init.lanes.plan?.lanes.lanes ?? [],
      onFollowed: () => init.lanes.poke(),
      isSwitching: () => loop.isSwitching,
    },
    signal,
  )
  return { loop, following }
}
