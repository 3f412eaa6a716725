/**
 * Asks the router in front of a hidden gateway for ports outside, while the plan says so, and ends the mappings when it
 * no longer does, or the cluster leaves. A process that stops leaves them as they are, as it leaves the links. Nothing
 * waits for a router: the lane loop reads what is known.
 */
import { createSocket } from 'node:dgram'
import {
  type Address,
  type AddressPort,
  formatAddress,
  formatAddressPort,
  parseAddress,
} from '../../../model/addresses/addresses.ts'
import { type Clock, ReconcileLoop, WakeTimer } from '../../../reconcile/reconcile.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { type GatewayWorld, loopDeps } from '../../world/world.ts'
import {
  type KeptMappings,
  forgetMappings,
  keepMappings,
  mappingNonce,
  readMappingSecret,
  readMappings,
  removeMappingSecret,
} from './kept-mappings.ts'
import { type MappingProtocol, ROUTER_PORT } from './mapping-frame.ts'
import { type PortMappingPlan, planMappedPlace, planPortMapping } from './plan-port-mapping.ts'
import { type LivingMapping, PortMapper } from './port-mapper.ts'

/** What the status says about the router. `unusable`: it states a place that is not believed. */
export type PortMappingView =
  | { readonly is: 'asking' | 'silent'; readonly router: string }
  | { readonly is: 'refused' | 'unusable'; readonly router: string; readonly why: string }
  | {
      readonly is: 'mapped'
      readonly router: string
      readonly protocol: MappingProtocol
      readonly place: AddressPort
      /** A port that is mapped elsewhere than its far ends call. */
      readonly problem?: string
    }

export interface PortMappingsInit {
  /** The node's private directory, where the mappings and the secret of their names are kept. */
  readonly stateDir: string
  /** known or view has changed. */
  readonly onChange: () => void
  /** The addresses at which relays see this node. Absent: none do. */
  readonly seen?: () => readonly string[]
  /** Absent: the real socket. */
  readonly openSocket?: OpenRouterSocket
}

const ROUNDS = { minMs: 2, resyncMs: 30_000, retryMinMs: 200, retryMaxMs: 5000, pokedRetryMs: 200 }
/** The messages that end mappings are sent twice: nothing waits for their answers. */
const RELEASE_AGAIN_MS = 100
const READY_MS = 1000
/** Far ends learn of another place at most once in this time. */
export const PLACE_APART_MS = 60_000

interface Planned {
  readonly world: GatewayWorld
  readonly plan: PortMappingPlan | undefined
}

/** The router that is asked now. */
interface AskedRouter {
  readonly router: Address
  readonly mapper: PortMapper
  socket?: RouterSocket | undefined
  /** From where messages to it go. Absent: the socket is not ready. */
  client?: Address | undefined
}

export class PortMappings {
  readonly #deps: { readonly clock: Clock; readonly logger: Logger }
  readonly #init: PortMappingsInit
  readonly #loop: ReconcileLoop
  readonly #wake: WakeTimer
  #secret: Buffer | undefined
  #planned: Planned | undefined
  #asked: AskedRouter | undefined
  #mapped: ReadonlyMap<number, AddressPort> = new Map()
  #view: PortMappingView | undefined
  /** What an earlier run has left. Undefined: nothing, or it has been taken. */
  #before: KeptMappings | undefined
  #keptText = ''
  /** When far ends learned of the present place, or that there is none. */
  #placedMs = -Infinity
  /** An address that relays have seen, and at which a place was believed. It stays while no relay is asked any more. */
  #confirmed: string | undefined
  /** Where others see this node, as text. */
  #sightings = ''

  constructor(deps: { readonly clock: Clock; readonly logger: Logger }, init: PortMappingsInit) {
    this.#deps = deps
    this.#init = init
    this.#wake = new WakeTimer(deps.clock, () => this.#loop.poke())
    this.#loop = new ReconcileLoop(loopDeps(deps, 'port mapping'), ROUNDS, (signal) => this.#round(signal))
  }

  /** Reads what an earlier run has left, so that the first plan has it. Never throws. */
  async prepare(): Promise<void> {
    this.#before = await readMappings(this.#init.stateDir)
  }

  /** What the next plan takes from here. */
  get known(): Pick<GatewayWorld, 'mapped' | 'routerOutside'> {
    const [outside] = this.#mapped.values()
    const stated = this.#asked === undefined || outside === undefined ? undefined : formatAddress(outside.address)
    return { ...this.#believed(), ...(stated === undefined ? {} : { routerOutside: stated }) }
  }

  #believed(): Pick<GatewayWorld, 'mapped'> {
    const before = this.#before
    const nowMs = this.#deps.clock.now()
    if (before?.place !== undefined && before.ports.some(({ untilMs }) => nowMs < untilMs))
      return { mapped: before.place }
    return this.#view?.is === 'mapped' ? { mapped: this.#view.place } : {}
  }

  /** Undefined: no router is asked. */
  get view(): PortMappingView | undefined {
    return this.#view
  }

  /** Takes the lanes of a round, and the world from which they were planned. */
  planned(world: GatewayWorld, { lanes }: { readonly lanes: readonly { readonly port: number }[] }): void {
    const [own] = world.lanes
    const sightings = [world.observedAddress, ...(this.#init.seen?.() ?? [])].join()
    if (sightings !== this.#sightings) this.#asked?.mapper.wake()
    this.#sightings = sightings
    const ports = lanes.map(({ port }) => port)
    this.#planned = { world, plan: own === undefined ? undefined : planPortMapping(world, own, ports) }
    if (this.#planned.plan !== undefined || this.#before !== undefined || this.#asked !== undefined) this.#loop.poke()
  }

  /** Keeps the mappings until the signal. They stay then: the links go on, and the next process renews them. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      await this.#loop.run(signal)
    } finally {
      this.#wake.close()
      if (this.#asked !== undefined) close(this.#asked)
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (this.#planned === undefined) return
    const { plan } = this.#planned
    if (this.#asked !== undefined && formatAddress(this.#asked.router) !== routerName(plan)) await this.#end()
    await this.#endBefore(plan)
    if (plan === undefined) return
    this.#secret ??= await readMappingSecret(this.#init.stateDir, this.#onUnkept)
    if (signal.aborted) return
    this.#asked ??= this.#begin(plan, this.#secret)
    this.#asked.mapper.want(plan.ports)
    this.#step(this.#asked)
    await this.#keep(this.#asked)
  }

  #begin({ router }: PortMappingPlan, secret: Buffer): AskedRouter {
    const mapper = this.#newMapper(secret)
    const nowMs = this.#deps.clock.monotonic()
    if (this.#before !== undefined) restore(mapper, this.#before, this.#deps.clock)
    // It was believed when it was kept.
    this.#confirmed ??= this.#before?.place && formatAddress(this.#before.place.address)
    this.#before = undefined
    this.#mapped = mapper.mapped(nowMs)
    return { router, mapper }
  }

  #newMapper(secret: Buffer): PortMapper {
    const lane = this.#planned?.world.lanes[0]?.lane ?? 0
    return new PortMapper({ nonce: mappingNonce(secret), lane, random: () => this.#deps.clock.random() })
  }

  /** Ends what an earlier run has left at a router that is not asked any more. */
  async #endBefore(plan: PortMappingPlan | undefined): Promise<void> {
    if (this.#before === undefined || this.#before.router === routerName(plan)) return
    this.#before = undefined
    this.#init.onChange()
    await endMappings(this.#deps.clock, this.#init)
  }

  async #keep({ router, mapper }: AskedRouter): Promise<void> {
    const { clock } = this.#deps
    const place = this.#view?.is === 'mapped' ? this.#view.place : undefined
    const { living, protocol } = mapper
    const known = living.map(({ inside, outside, untilMs }) => [inside, formatAddressPort(outside), untilMs])
    const text = living.length === 0 ? '' : JSON.stringify([place && formatAddressPort(place), known])
    if (text === this.#keptText) return
    this.#keptText = text
    const ports = living.map((one) => ({ ...one, untilMs: Math.round(one.untilMs - clock.monotonic() + clock.now()) }))
    const kept = { router: formatAddress(router), protocol, ports, ...(place === undefined ? {} : { place }) }
    await keepMappings(this.#init.stateDir, kept).catch(this.#onUnkept)
  }

  readonly #onUnkept = (error: unknown): void => {
    this.#deps.logger.debug('cannot keep port mappings', { why: messageOf(error) })
  }

  /** Sends what is due. A socket is open only while a question is under way, so a flood finds none. */
  #step(asked: AskedRouter): void {
    const { clock } = this.#deps
    const nowMs = clock.monotonic()
    const { mapper } = asked
    if (mapper.dueMs(nowMs) <= nowMs && asked.socket === undefined) this.#open(asked)
    if (asked.socket !== undefined && asked.client !== undefined) {
      const message = mapper.next(nowMs, asked.client)
      if (message !== undefined) asked.socket.send(message)
      if (!mapper.isAsking) close(asked)
    }
    this.#look(asked, nowMs)
    const dueMs = mapper.dueMs(nowMs)
    const isWaiting = asked.socket !== undefined && asked.client === undefined
    if (dueMs !== Infinity && !isWaiting) this.#wake.at(dueMs)
  }

  #open(asked: AskedRouter): void {
    const { clock } = this.#deps
    const open = this.#init.openSocket ?? openRouterSocket
    const poke = (): void => this.#loop.poke()
    asked.socket = open(formatAddress(asked.router), {
      onReady: (client) => {
        asked.client = parseAddress(client)
        poke()
      },
      onMessage: (bytes) => {
        if (asked.mapper.take(bytes, clock.monotonic())) poke()
        if (!asked.mapper.isAsking) close(asked)
      },
      onError: () => {
        close(asked)
        asked.mapper.unreachable(clock.monotonic())
        poke()
      },
    })
  }

  #look({ router, mapper }: AskedRouter, nowMs: number): void {
    const before = this.#view
    if (mapper.isResting(nowMs)) return
    // What is known stays while the router is asked: ports that are to have one distance are asked for one by one.
    if (mapper.isSettled(nowMs)) this.#mapped = mapper.mapped(nowMs)
    const view = viewOf(formatAddress(router), mapper, this.#place())
    if (placeText(view) !== placeText(before)) {
      if (nowMs < this.#placedMs + PLACE_APART_MS) {
        this.#wake.at(this.#placedMs + PLACE_APART_MS)
        return
      }
      this.#placedMs = nowMs
    }
    this.#view = view
    // A place that nobody can call is no reason to renew it for ever, as behind a carrier's NAT.
    if (view.is === 'unusable' && mapper.isSettled(nowMs)) mapper.rest(nowMs)
    if (portMappingText(before) === portMappingText(this.#view)) return
    const { is } = this.#view
    this.#deps.logger.info(`port mapping: ${is}`, { address: formatAddress(router), why: portMappingText(this.#view) })
    this.#init.onChange()
  }

  #place(): ReturnType<typeof planMappedPlace> {
    const world = this.#planned?.world
    const [own] = world?.lanes ?? []
    if (world === undefined || own === undefined) return {}
    const seen = new Set([...(this.#init.seen?.() ?? []), ...(this.#confirmed === undefined ? [] : [this.#confirmed])])
    seen.delete(world.observedAddress ?? '')
    const found = planMappedPlace(world, own, this.#mapped, [...seen])
    if (found.place !== undefined) this.#confirmed = formatAddress(found.place.address)
    return found
  }

  /** Ends all mappings at the router, in bounded time. */
  async #end(): Promise<void> {
    const asked = this.#asked
    this.#asked = undefined
    if (asked === undefined) return
    close(asked)
    this.#mapped = new Map()
    if (this.#view !== undefined) {
      this.#view = undefined
      this.#init.onChange()
    }
    this.#keptText = ''
    this.#placedMs = -Infinity
    const { clock } = this.#deps
    if (asked.mapper.mapped(clock.monotonic()).size > 0) await release(asked, clock, this.#init.openSocket)
    await forgetMappings(this.#init.stateDir)
  }
}

type StateInit = Pick<PortMappingsInit, 'stateDir' | 'openSocket'>

/**
 * Ends the mappings of a gateway that has left, in bounded time, and removes what it has kept. Nothing happens if it has
 * none. Throws what the file system throws.
 */
export async function endPortMappings(clock: Clock, init: StateInit): Promise<void> {
  await endMappings(clock, init)
  await removeMappingSecret(init.stateDir)
}

async function endMappings(clock: Clock, { stateDir, openSocket }: StateInit): Promise<void> {
  const before = await readMappings(stateDir)
  if (before === undefined) return
  const secret = await readMappingSecret(stateDir, () => undefined)
  const mapper = new PortMapper({ nonce: mappingNonce(secret), lane: 0, random: () => clock.random() })
  restore(mapper, before, clock)
  if (mapper.living.length > 0) await release({ router: parseAddress(before.router), mapper }, clock, openSocket)
  await forgetMappings(stateDir)
}

function restore(mapper: PortMapper, { protocol, ports }: KeptMappings, clock: Clock): void {
  const nowMs = clock.monotonic()
  const before = ports.map((one): LivingMapping => ({ ...one, untilMs: one.untilMs - clock.now() + nowMs }))
  mapper.restore(protocol, before, nowMs)
}

/** Sends what ends all mappings. Waits for no answer. */
async function release(
  { router, mapper }: Pick<AskedRouter, 'router' | 'mapper'>,
  clock: Clock,
  open: OpenRouterSocket = openRouterSocket,
): Promise<void> {
  const sent = Promise.withResolvers<undefined>()
  let cancelAgain = (): void => undefined
  const socket = open(formatAddress(router), {
    onReady: (client) => {
      const messages = mapper.release(parseAddress(client))
      const send = (): void => messages.forEach((bytes) => socket.send(bytes))
      send()
      cancelAgain = clock.setTimer(RELEASE_AGAIN_MS, () => {
        send()
        sent.resolve(undefined)
      })
    },
    onMessage: () => undefined,
    onError: () => sent.resolve(undefined),
  })
  const cancel = clock.setTimer(READY_MS, () => sent.resolve(undefined))
  await sent.promise
  cancel()
  cancelAgain()
  socket.close()
}

function close(asked: AskedRouter): void {
  asked.socket?.close()
  asked.socket = undefined
  asked.client = undefined
}

function routerName(plan: PortMappingPlan | undefined): string {
  return plan === undefined ? '' : formatAddress(plan.router)
}

function viewOf(
  router: string,
  { state, protocol }: PortMapper,
  { place, problem }: ReturnType<typeof planMappedPlace>,
) {
  if (place !== undefined) {
    return { is: 'mapped', router, protocol, place, ...(problem === undefined ? {} : { problem }) } as const
  }
  if (problem !== undefined) return { is: 'unusable', router, why: problem } as const
  switch (state.is) {
    case 'refused':
      return { is: 'refused', router, why: state.why } as const
    case 'silent':
      return { is: 'silent', router } as const
    case 'asking':
    case 'mapped':
      return { is: 'asking', router } as const
  }
}

function placeText(view: PortMappingView | undefined): string {
  return view?.is === 'mapped' ? formatAddressPort(view.place) : ''
}

/** One clause for the status. Empty if there is nothing to say. */
export function portMappingText(view: PortMappingView | undefined): string {
  if (view === undefined) return ''
  switch (view.is) {
    case 'asking':
      return `router ${view.router} is asked for ports outside`
    case 'silent':
      return `router ${view.router} maps no ports: it answers neither PCP nor NAT-PMP`
    case 'refused':
      return `router ${view.router} refuses: ${view.why}`
    case 'unusable':
      return `router ${view.router} is not believed: ${view.why}`
    case 'mapped': {
      const name = view.protocol === 'pcp' ? 'PCP' : 'NAT-PMP'
      const but = view.problem === undefined ? '' : `; ${view.problem}`
      return `router ${view.router} leads ${formatAddressPort(view.place)} to this gateway (${name})${but}`
    }
  }
}

// The UDP socket that exchanges messages with one router and with no other machine.

export interface RouterSocket {
  /** Never throws: a message that cannot be sent gets no answer. */
  send(bytes: Buffer): void
  close(): void
}

export interface RouterSocketEvents {
  /** `client`: the address of this node from which messages to the router go. Called at most once. */
  onReady(client: string): void
  onMessage(bytes: Buffer): void
  /** The socket is closed. Called at most once. Nothing listens at the router, or there is no way to it. */
  onError(error: Error): void
}

export type OpenRouterSocket = (router: string, events: RouterSocketEvents) => RouterSocket

/** The kernel drops what comes from elsewhere, because the socket is connected. */
export const openRouterSocket: OpenRouterSocket = (router, events) => {
  const socket = createSocket('udp4')
  let isOpen = true
  const close = (): void => {
    if (!isOpen) return
    isOpen = false
    socket.close()
  }
  const failed = (error: Error): void => {
    if (!isOpen) return
    close()
    events.onError(error)
  }
  socket.on('message', (bytes) => {
    if (isOpen) events.onMessage(bytes)
  })
  socket.on('error', failed)
  socket.on('connect', () => {
    if (isOpen) events.onReady(socket.address().address)
  })
  // With a callback, this would call it in place of the event of a failure.
  socket.connect(ROUTER_PORT, router)
  return {
    send: (bytes) => {
      if (isOpen)
        socket.send(bytes, (error) => {
          if (error instanceof Error) failed(error)
        })
    },
    close,
  }
}
