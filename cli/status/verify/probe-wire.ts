/**
 * What probe pods say to each other and to the command that started them: ports, requests, calls, and their results.
 * The far pod is of another cluster, so each answer is validated and bounded. Pure.
 */
import { isIP } from 'node:net'
import { fitText, isDnsLabel, isDnsSubdomain, printable } from '../../../model/model.ts'
import { UserError } from '../../../runtime/runtime.ts'

/** The hidden command that runs in probe pods. */
export const PROBE_COMMAND = 'probe'
/** TCP and UDP. Services of the probe export this port. */
export const PROBE_PORT = 7203
/** TCP. No Service has this port. */
export const HIDDEN_PORT = 7204

export const MOST_BULK_BYTES = 16 << 20
export const MOST_DATAGRAM = 65_000
export const MOST_STREAMS = 32
export const MOST_SECONDS = 60
export const MOST_COUNT = 20_000
export const MOST_SIZES = 16
export const MOST_ADDRESSES = 16
export const MOST_TRIES = 10
/** So long for the round trips of a latency call. The server keeps a connection for longer. */
export const LATENCY_MS = 30_000
/** The calls of one command line. */
export const MOST_CALLS = 32
/** The maximum length of a request line of TCP, and of the answer to `hello`. */
export const MOST_LINE = 512
/** A `hello` over UDP is at least this long, so that its answer is never longer than the request. */
export const HELLO_DATAGRAM = 700

export type Family = 4 | 6

/** One end of a call: a name, which the resolver of the machine looks up, or an address. */
export interface Target {
  readonly host: string
  readonly port: number
  readonly family: Family
  /** `address:port` of the DNS server that is asked for the name instead of the resolver of the machine. */
  readonly dns?: string
}

/** What a client does. */
export type ProbeCall =
  | { readonly op: 'resolve'; readonly name: string; readonly srv?: string; readonly dns?: string }
  | {
      readonly op: 'hello'
      readonly protocol: 'tcp' | 'udp'
      readonly to: Target
      readonly tries: number
      readonly timeoutMs: number
    }
  /** Calls again and again until a call is not answered within `timeoutMs`, or until `limitMs` are over. */
  | { readonly op: 'refused'; readonly to: Target; readonly timeoutMs: number; readonly limitMs: number }
  | { readonly op: 'connect'; readonly to: Target; readonly timeoutMs: number }
  | { readonly op: 'bulk'; readonly to: Target; readonly bytes: number; readonly timeoutMs: number }
  | { readonly op: 'datagrams'; readonly to: Target; readonly sizes: readonly number[] }
  | { readonly op: 'throughput'; readonly to: Target; readonly streams: number; readonly seconds: number }
  | { readonly op: 'latency'; readonly to: Target; readonly count: number }
  | { readonly op: 'loss'; readonly to: Target; readonly count: number; readonly intervalMs: number }
  | {
      readonly op: 'steady'
      readonly to: Target
      readonly seconds: number
      readonly intervalMs: number
      /** Opens connections and says nothing: what listens there is no probe. */
      readonly isOpenOnly?: boolean
    }

export type ProbeOp = ProbeCall['op']

/** Who answered, in its own words, and the address from which it saw the call come. */
export interface HelloAnswer {
  readonly member: string
  readonly pod: string
  readonly from: string
}

export interface SrvTarget {
  readonly name: string
  readonly port: number
}

/** A name with the search domains of a resolver, and how many addresses it has. */
export interface SearchedName {
  readonly name: string
  readonly addresses: number
}

export interface ProbeResults {
  readonly resolve: {
    /** IPv4 and IPv6. */
    readonly addresses: readonly string[]
    readonly srv: readonly SrvTarget[]
    /** The names that the resolver asks for before the one that is meant. */
    readonly before: readonly SearchedName[]
    readonly ndots: number
  }
  readonly hello: HelloAnswer & { readonly ms: number }
  /** How the last call failed. Without it, that call was answered. */
  readonly refused: { readonly ms: number; readonly failure?: ProbeFailure }
  readonly connect: { readonly ms: number }
  readonly bulk: { readonly ms: number; readonly bytes: number; readonly isSame: boolean }
  /** The sizes that came back whole, in octets of UDP payload. */
  readonly datagrams: { readonly passed: readonly number[] }
  readonly throughput: { readonly ms: number; readonly bytes: number }
  /** Round trips in milliseconds, and how many there were: fewer than asked for if they take long. */
  readonly latency: { readonly p50: number; readonly p99: number; readonly p999: number; readonly count: number }
  readonly loss: { readonly sent: number; readonly lost: number; readonly jitterMs: number }
  readonly steady: { readonly sent: number; readonly lost: number; readonly longestMs: number }
}

/** How a call failed. `foreign`: something answered that is no probe of this run. */
export const FAILURES = ['refused', 'timeout', 'unreachable', 'no-name', 'closed', 'foreign', 'other'] as const
export type ProbeFailure = (typeof FAILURES)[number]

export interface FailedCall {
  readonly ok: false
  readonly failure: ProbeFailure
  readonly message: string
}

export type ProbeResult<Op extends ProbeOp = ProbeOp> =
  { readonly ok: true; readonly value: ProbeResults[Op] } | FailedCall

const MOST_MESSAGE = 200

export function failedCall(failure: ProbeFailure, message: string): FailedCall {
  return { ok: false, failure, message: fitText(printable(message), MOST_MESSAGE) }
}

/** An error of the client, with its kind. */
export class ProbeError extends Error {
  readonly failure: ProbeFailure
  constructor(failure: ProbeFailure, message: string) {
    super(message)
    this.name = 'ProbeError'
    this.failure = failure
  }
}

/** Sixteen hexadecimal digits. They keep runs apart and are no secret. */
export function isRun(text: string): boolean {
  return /^[0-9a-f]{16}$/.test(text)
}

// The requests of TCP are one line of words: `SLP1 RUN OP [BYTES]`.

export const TCP_OPS = ['hello', 'bulk', 'sink', 'ping'] as const
export interface TcpRequest {
  readonly op: (typeof TCP_OPS)[number]
  readonly bytes: number
}

export function tcpRequestLine(run: string, { op, bytes }: TcpRequest): string {
  return `SLP1 ${run} ${op} ${bytes}\n`
}

/** Takes a line without its end. Undefined unless it is a request of this run. */
export function parseTcpRequest(line: string, run: string): TcpRequest | undefined {
  const [magic, ofRun, word, size = '', ...more] = line.split(' ')
  const op = TCP_OPS.find((one) => one === word)
  if (magic !== 'SLP1' || ofRun !== run || op === undefined || more.length > 0) return undefined
  const bytes = /^\d{1,9}$/.test(size) ? Number(size) : Number.NaN
  return bytes <= MOST_BULK_BYTES ? { op, bytes } : undefined
}

// The datagrams of UDP: `SLP1 RUN OP SEQ ` and padding. Answers begin with other letters, or two servers could answer
// each other without an end.

const HEAD = { asked: 'SLP1', answered: 'SLR1' } as const

export interface Datagram {
  readonly op: 'hello' | 'echo'
  readonly sequence: number
}

const DATAGRAM = /^(SLP1|SLR1) ([0-9a-f]{16}) (hello|echo) (\d{1,9}) /

/** `size` is the whole payload in octets; it is never shorter than the head. */
export function datagramOf(run: string, { op, sequence }: Datagram, size: number): Buffer {
  const head = Buffer.from(`${HEAD.asked} ${run} ${op} ${sequence} `)
  return Buffer.concat([head, Buffer.alloc(Math.max(0, size - head.length), 0x2e)])
}

/** Undefined unless the datagram is of this run. */
export function parseDatagram(data: Buffer, run: string, way: keyof typeof HEAD): Datagram | undefined {
  const [, head, ofRun, op, sequence] = DATAGRAM.exec(data.subarray(0, 64).toString('latin1')) ?? []
  if (head !== HEAD[way] || ofRun !== run) return undefined
  return { op: op as Datagram['op'], sequence: Number(sequence) }
}

/** An `echo` is the same datagram with the head of an answer. */
export function echoOf(data: Buffer): Buffer {
  const copy = Buffer.from(data)
  copy.write(HEAD.answered, 0, 'latin1')
  return copy
}

/** The answer to a `hello` over UDP. */
export function helloDatagram(run: string, sequence: number, answer: HelloAnswer): Buffer {
  return Buffer.from(`${HEAD.answered} ${run} hello ${sequence} ${helloText(run, answer)}`)
}

export function helloOfDatagram(data: Buffer, run: string): HelloAnswer | undefined {
  const text = data.subarray(0, HELLO_DATAGRAM).toString('utf8')
  return parseHello(text.slice(text.indexOf('{')), run)
}

export function helloText(run: string, { member, pod, from }: HelloAnswer): string {
  return JSON.stringify({ run, member, pod, from })
}

/** Undefined unless the text is the answer of a probe of this run. */
export function parseHello(text: string, run: string): HelloAnswer | undefined {
  if (text.length > MOST_LINE) return undefined
  const { run: ofRun, member, pod, from } = recordIn(text)
  if (ofRun !== run || typeof member !== 'string' || typeof pod !== 'string' || typeof from !== 'string') {
    return undefined
  }
  if (!isDnsLabel(member) || !isDnsSubdomain(pod) || isIP(from) === 0) return undefined
  return { member, pod, from }
}

/** The object in a JSON text. Empty for anything else. */
function recordIn(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {}
  } catch {
    return {}
  }
}

/** How many octets a server says that it received. Never more than were sent. */
export function parseReceived(text: string, sent: number): number | undefined {
  const { received } = recordIn(text)
  return isCount(received, Number.MAX_SAFE_INTEGER) ? Math.min(received, sent) : undefined
}

// The command line of a client in a pod: one call as JSON, and one result as JSON.

/** Reads the call of the hidden command. Throws UserError, which names the field. */
export function parseCall(text: string): ProbeCall {
  const call = recordIn(text)
  const { op } = call
  const shape = typeof op === 'string' && Object.hasOwn(CALLS, op) ? CALLS[op as ProbeOp] : undefined
  if (shape === undefined) throw badField('op', op, Object.keys(CALLS).join(', '))
  for (const [field, { is, expected }] of Object.entries(shape)) {
    if (!is(call[field])) throw badField(field, call[field], expected)
  }
  return call as unknown as ProbeCall
}

function badField(field: string, value: unknown, expected: string): UserError {
  const shown = fitText(value === undefined ? 'nothing' : JSON.stringify(value), 100)
  return new UserError(`call: ${field} ${shown}: expected ${expected}`, { exitCode: 2 })
}

interface Shape {
  readonly is: (value: unknown) => boolean
  readonly expected: string
}

const number = (most: number): Shape => ({
  is: (value) => isCount(value, most) && value > 0,
  expected: `a whole number from 1 to ${most}`,
})
const NAME: Shape = { is: isName, expected: 'a DNS name' }
const MAYBE_NAME: Shape = { is: (value) => value === undefined || isName(value), expected: 'a DNS name' }
const MAYBE_SERVER: Shape = { is: (value) => value === undefined || isServer(value), expected: 'address:port' }
const TO: Shape = {
  is: (value) => {
    const { host, port, family, dns } = (value ?? {}) as Partial<Record<keyof Target, unknown>>
    const isHost = typeof host === 'string' && (isIP(host) !== 0 || isName(host))
    const isFamily = family === 4 || family === 6
    return isHost && isCount(port, 65_535) && port > 0 && isFamily && (dns === undefined || isServer(dns))
  },
  expected: 'host, port, family 4 or 6, and perhaps dns',
}
const TIMEOUT = number(60_000)

const CALLS: Readonly<Record<ProbeOp, Readonly<Record<string, Shape>>>> = {
  resolve: { name: NAME, srv: MAYBE_NAME, dns: MAYBE_SERVER },
  hello: {
    protocol: { is: (value) => value === 'tcp' || value === 'udp', expected: 'tcp or udp' },
    ...{ to: TO, tries: number(MOST_TRIES), timeoutMs: TIMEOUT },
  },
  refused: { to: TO, timeoutMs: TIMEOUT, limitMs: TIMEOUT },
  connect: { to: TO, timeoutMs: TIMEOUT },
  bulk: { to: TO, bytes: number(MOST_BULK_BYTES), timeoutMs: TIMEOUT },
  datagrams: {
    to: TO,
    sizes: {
      is: (value) =>
        Array.isArray(value) && value.length <= MOST_SIZES && value.every((one) => isCount(one, MOST_DATAGRAM)),
      expected: `at most ${MOST_SIZES} sizes up to ${MOST_DATAGRAM}`,
    },
  },
  throughput: { to: TO, streams: number(MOST_STREAMS), seconds: number(MOST_SECONDS) },
  latency: { to: TO, count: number(MOST_COUNT) },
  loss: { to: TO, count: number(MOST_COUNT), intervalMs: number(1000) },
  steady: {
    ...{ to: TO, seconds: number(MOST_SECONDS), intervalMs: number(1000) },
    isOpenOnly: { is: (value) => value === undefined || typeof value === 'boolean', expected: 'true or false' },
  },
}

function isName(value: unknown): boolean {
  return typeof value === 'string' && value.length <= 253 && /^[a-z0-9_]([a-z0-9_.-]*[a-z0-9])?$/i.test(value)
}

function isServer(value: unknown): boolean {
  return typeof value === 'string' && value.length <= 60 && /^[0-9a-f.:[\]]+:\d{1,5}$/i.test(value)
}

function isCount(value: unknown, most: number): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= most
}

/** A number that is not negative and that a person can read: a duration or a rate. */
function isMeasure(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 && value <= 1e15
}

/**
 * Reads what a client printed. Text in it may come from the other cluster. A text that is no result of this call is a
 * failed call.
 */
export function readResult<Op extends ProbeOp>(op: Op, stdout: string): ProbeResult<Op> {
  const { ok, failure, message, value } = recordIn(stdout)
  if (ok === false) {
    const known = FAILURES.find((one) => one === failure) ?? 'other'
    return failedCall(known, typeof message === 'string' ? message : '')
  }
  if (ok === true && typeof value === 'object' && value !== null && RESULTS[op](value as Fields)) {
    return { ok: true, value: value as ProbeResults[Op] }
  }
  return failedCall('other', `its output is ${JSON.stringify(stdout.slice(0, 60))}: expected a result of ${op}`)
}

type Fields = Readonly<Record<string, unknown>>

function isListOf(value: unknown, most: number, is: (one: unknown) => boolean): boolean {
  return Array.isArray(value) && value.length <= most && value.every(is)
}

const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null

const RESULTS: Readonly<Record<ProbeOp, (value: Fields) => boolean>> = {
  resolve: ({ addresses, srv, before, ndots }) =>
    isListOf(addresses, MOST_ADDRESSES, (one) => typeof one === 'string' && isIP(one) !== 0) &&
    isListOf(srv, MOST_ADDRESSES, (one) => isFields(one) && isName(one['name']) && isCount(one['port'], 65_535)) &&
    isListOf(
      before,
      MOST_ADDRESSES,
      (one) => isFields(one) && isName(one['name']) && isCount(one['addresses'], 1000),
    ) &&
    isCount(ndots, 100),
  hello: ({ member, pod, from, ms }) =>
    typeof member === 'string' &&
    isDnsLabel(member) &&
    typeof pod === 'string' &&
    isDnsSubdomain(pod) &&
    typeof from === 'string' &&
    isIP(from) !== 0 &&
    isMeasure(ms),
  refused: ({ ms, failure }) => isMeasure(ms) && (failure === undefined || FAILURES.some((one) => one === failure)),
  connect: ({ ms }) => isMeasure(ms),
  bulk: ({ ms, bytes, isSame }) => isMeasure(ms) && isCount(bytes, MOST_BULK_BYTES) && typeof isSame === 'boolean',
  datagrams: ({ passed }) => isListOf(passed, MOST_SIZES, (one) => isCount(one, MOST_DATAGRAM)),
  throughput: ({ ms, bytes }) => isMeasure(ms) && ms > 0 && isMeasure(bytes),
  latency: ({ p50, p99, p999, count }) => [p50, p99, p999].every(isMeasure) && isCount(count, MOST_COUNT),
  loss: ({ sent, lost, jitterMs }) => isCount(sent, MOST_COUNT) && isCount(lost, sent) && isMeasure(jitterMs),
  steady: ({ sent, lost, longestMs }) => isCount(sent, 1e6) && isCount(lost, sent) && isMeasure(longestMs),
}
