/** A relay's bindings with ends that have real identities, and a clock that tests move. */
import { randomBytes } from 'node:crypto'
import { agreementOf } from '../../../gateway/cable/agreement.ts'
import {
  type BindAnswer,
  type BindQuestion,
  NO_COOKIE,
  type NatMapping,
  bindKey,
  decodeAnswer,
  encodeAnswer,
  encodeQuestion,
  endId,
} from '../../../gateway/reach/frames/bind-frame.ts'
import { type BindingLimits, Bindings, DEFAULT_LIMITS } from '../../../gateway/reach/relay-server/bindings.ts'
import type { RelayEffect, RelayEnd } from '../../../gateway/reach/relay-server/relay-events.ts'
import { generateWireguardKey } from '../../../kernel/wireguard/wireguard-device.ts'
import { type AddressPort, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { RELAY_PORT } from '../../../model/kernel-ids.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

export const CLUSTERSET = 'alps'
export const CONTROL = RELAY_PORT
/** The relay itself, at its control port. */
export const RELAY_AT: AddressPort = parseAddressPort(`203.0.113.9:${CONTROL}`)

/** An end as it knows itself. */
export interface TestEnd extends RelayEnd {
  readonly id: string
  /** What it and the relay agree on, and the key for messages between them. */
  readonly secret: Buffer
  readonly key: Buffer
  counter: number
}

export interface StageInit {
  readonly limits?: Partial<BindingLimits>
  readonly ports?: { readonly first: number; readonly last: number }
  /** Identity keys of the relay, for two relays of one identity. */
  readonly keys?: ReturnType<typeof generateWireguardKey>
}

export interface AskInit {
  readonly at: string
  /** Default: the control port. */
  readonly port?: number
  readonly cookie?: Buffer
  /** Default: it does not know. */
  readonly mapping?: NatMapping
  readonly counter?: number
  /** Default: the key of the end. */
  readonly key?: Buffer
}

export class RelayStage {
  readonly clock = new FakeClock()
  readonly keys: ReturnType<typeof generateWireguardKey>
  readonly bindings: Bindings
  readonly #ends: TestEnd[] = []
  /** RelayPath.number by port, as last seen. */
  readonly #numbers = new Map<number, number>()

  constructor({ limits = {}, ports = { first: 4601, last: 4699 }, keys = generateWireguardKey() }: StageInit = {}) {
    this.keys = keys
    this.bindings = new Bindings({
      clock: this.clock,
      clusterset: CLUSTERSET,
      identity: keys.publicKey,
      address: RELAY_AT.address,
      controlPort: CONTROL,
      ports,
      limits: { ...DEFAULT_LIMITS, ...limits },
      agree: agreementOf(keys.privateKey),
      randomBytes,
    })
  }

  /** A challenge that answers the question of the end with this identity, whatever else a relay would answer. */
  challengeTo(question: Buffer, end: string): Buffer {
    const secret = agreementOf(this.keys.privateKey)(end) ?? Buffer.alloc(0)
    const key = bindKey({ secret, clusterset: CLUSTERSET, relay: this.keys.publicKey, end })
    const [from, to] = [question.toString('hex', 8, 16), question.toString('hex', 16, 24)]
    const counter = Number(question.readBigUInt64BE(24))
    return encodeAnswer({ from, to, counter, type: 'challenge', cookie: randomBytes(16) }, key)
  }

  /** Adds an end that may use the relay. */
  end(member: string, clusterset = CLUSTERSET): TestEnd {
    const { privateKey, publicKey } = generateWireguardKey()
    const secret = agreementOf(privateKey)(this.keys.publicKey) ?? Buffer.alloc(0)
    const key = bindKey({ secret, clusterset, relay: this.keys.publicKey, end: publicKey })
    const end: TestEnd = { member, identity: publicKey, id: endId(clusterset, publicKey), secret, key, counter: 0 }
    this.#ends.push(end)
    this.allow(this.#ends)
    return end
  }

  allow(
    ends: readonly RelayEnd[],
    mayLink: (a: string, b: string) => boolean = () => true,
    isTransit?: (a: string, b: string) => boolean,
  ): RelayEffect {
    return this.bindings.apply({ kind: 'ends', ends, mayLink, isTransit })
  }

  bytes(from: TestEnd, to: TestEnd, init: Partial<AskInit> = {}): Buffer {
    const { cookie = NO_COOKIE, counter = ++from.counter, key = from.key, mapping = 'unknown' } = init
    const question: BindQuestion = { from: from.id, to: to.id, counter, cookie, mapping }
    return encodeQuestion(question, key)
  }

  send(bytes: Buffer, at: string, port = CONTROL): RelayEffect {
    return this.bindings.apply({ kind: 'question', bytes, from: parseAddressPort(at), port })
  }

  /** Asks once. Undefined: no answer. */
  ask(from: TestEnd, to: TestEnd, init: AskInit): BindAnswer | undefined {
    const { answer } = this.send(this.bytes(from, to, init), init.at, init.port)
    return answer === undefined ? undefined : decodeAnswer(answer, from.key)
  }

  /** Asks, and asks again with the cookie if there is a challenge. */
  prove(from: TestEnd, to: TestEnd, init: AskInit): BindAnswer | undefined {
    const first = this.ask(from, to, init)
    return first?.type === 'challenge' ? this.ask(from, to, { ...init, cookie: first.cookie }) : first
  }

  /** Binds an end and returns its port. Throws if the relay does not bind it. */
  bind(from: TestEnd, to: TestEnd, at: string): number {
    const assigned = this.prove(from, to, { at })
    if (assigned?.type !== 'assigned') throw new Error(`no port: ${JSON.stringify(assigned)}`)
    const bound = this.prove(from, to, { at, port: assigned.port })
    if (bound?.type !== 'bound') throw new Error(`not bound: ${JSON.stringify(bound)}`)
    return assigned.port
  }

  /** Octets that arrived at a port. If several ends share it, they are of the first one. */
  carry(port: number, octets: number): RelayEffect {
    // Octets may also be counted after an end's binding is over.
    for (const path of this.bindings.paths().toReversed()) this.#numbers.set(path.port, path.number)
    return this.bindings.apply({ kind: 'carried', octets: new Map([[this.#numbers.get(port) ?? 0, octets]]) })
  }
}

/** `198.51.100.1:4500 4601 > 192.0.2.1:4500 4602`, for each direction. */
export function pathTexts(stage: RelayStage): string[] {
  const text = ({ address, port }: AddressPort): string => `${String(address.value)}:${port}`
  return stage.bindings
    .paths()
    .map(({ from, port, to, leaves }) => `${text(from)} ${port} > ${text(to)} ${leaves}`)
    .sort()
}
