/** Entries as the kernel lists them; test/netns/kernel-conntrack.test.ts has a real one. */
import t from 'tap'
import {
  decodeCall,
  decodeConnection,
  decodeState,
  encodeCallsRequest,
  encodeListRequest,
  rangeOf,
} from '../../../kernel/nfnetlink/ctnetlink-codec.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { type Attribute, addressBytes, body, u8 } from '../../../kernel/route/rtnetlink-codec.ts'

const ASSURED = 1 << 2
const SEEN_REPLY = 1 << 1
const ESTABLISHED = 3
const [TCP, UDP, SCTP, ICMP] = [6, 17, 132, 1] as const

interface Entry {
  readonly family?: number
  readonly protocol?: number
  readonly status?: number
  readonly state?: number
  readonly without?: number
}

/** An entry of a call from 10.42.1.5 to 245.0.0.7, which 10.60.0.7 answers. */
function entry({ family = 2, protocol = TCP, status = ASSURED, state = ESTABLISHED, without }: Entry): Buffer {
  const flags = Buffer.alloc(4)
  flags.writeUInt32BE(status)
  const tuple = (source: string, destination: string): readonly Attribute[] => [
    [
      1,
      [
        [1, addressBytes(source)],
        [2, addressBytes(destination)],
      ],
    ],
    [
      2,
      [
        [1, u8(protocol)],
        [2, Buffer.from([0x9c, 0x40])],
        [3, Buffer.from([0, 80])],
      ],
    ],
  ]
  const all: readonly Attribute[] = [
    [1, tuple('10.42.1.5', '245.0.0.7')],
    [2, tuple('10.60.0.7', '10.42.1.5')],
    [3, flags],
    [7, Buffer.from([0, 0, 0, 9])],
    [4, [[1, [[1, u8(state)]]]]],
  ]
  const head = Buffer.from([family, 0, 0, 0])
  return Buffer.concat(
    body(
      head,
      all.filter(([type]) => type !== without),
    ),
  )
}

const FOUND = { client: 0x0a2a0105, server: 0x0a3c0007 }

t.test('which entries are connections that are open', (t) => {
  const rows: [name: string, entry: Entry, isOpen: boolean][] = [
    ['TCP, established', {}, true],
    ['TCP, half open', { state: 2 }, false],
    ['TCP, closing', { state: 7 }, false],
    ['TCP, nobody has answered', { status: 0 }, false],
    ['UDP, assured', { protocol: UDP, without: 4 }, true],
    ['UDP, one question and one answer', { protocol: UDP, without: 4, status: SEEN_REPLY }, false],
    ['ICMP', { protocol: ICMP, without: 4 }, false],
    ['SCTP', { protocol: SCTP }, false],
    ['IPv6', { family: 10 }, false],
    ['without a state', { without: 4 }, false],
    ['without who called', { without: 1 }, false],
    ['without who answers', { without: 2 }, false],
    ['without a status', { without: 3 }, false],
  ]
  for (const [name, one, isOpen] of rows) t.strictSame(decodeConnection(entry(one)), isOpen ? FOUND : undefined, name)
  t.end()
})

t.test('cut anywhere, it is none, and nothing is read beyond', (t) => {
  const whole = entry({})
  for (let length = 0; length < whole.length; length += 1) {
    t.equal(decodeConnection(whole.subarray(0, length)), undefined, `${length} bytes`)
  }
  for (let at = 4; at < whole.length; at += 1) {
    const bytes = Buffer.from(whole)
    bytes[at] = 0xff
    t.doesNotThrow(() => decodeConnection(bytes), `byte ${at}`)
  }
  t.end()
})

t.test('which entries are calls with an answer, and without', (t) => {
  const range = rangeOf(parsePrefix('245.0.0.0/16'))
  const SYN_SENT = 1
  const rows: [name: string, entry: Entry, state: 'answered' | 'unanswered' | undefined][] = [
    ['only a SYN', { status: 0, state: SYN_SENT }, 'unanswered'],
    ['seen from the middle, and one direction only', { status: 0 }, undefined],
    ['half open', { status: SEEN_REPLY, state: 2 }, 'answered'],
    ['closed', { status: SEEN_REPLY | ASSURED, state: 7 }, 'answered'],
    ['UDP', { protocol: UDP, status: 0, without: 4 }, undefined],
    ['IPv6', { family: 10, status: 0, state: SYN_SENT }, undefined],
    ['without a status', { state: SYN_SENT, without: 3 }, undefined],
    ['without who answers', { status: 0, state: SYN_SENT, without: 2 }, undefined],
  ]
  for (const [name, one, state] of rows)
    for (const asked of ['answered', 'unanswered'] as const) {
      const found = decodeCall(withId(entry(one)), range, asked)
      t.equal(found?.server.address, state === asked ? '10.60.0.7' : undefined, `${name}: ${asked}`)
    }
  const idle = (one: Entry, lastsSeconds?: number): number | undefined =>
    decodeCall(withId(entry({ status: SEEN_REPLY, ...one })), range, 'answered', lastsSeconds)?.idleSeconds
  t.equal(idle({}, 100), 91, 'each packet renews the time that is left')
  t.equal(idle({}, 5), 0, 'the kernel gave another time meanwhile')
  t.equal(idle({}), undefined, 'not known how long entries last')
  t.equal(idle({ without: 7 }, 100), undefined, 'not known how long is left')
  t.equal(idle({ state: 4 }, 100), undefined, 'it is closing, which has a time of its own')
  const whole = withId(entry({ status: 0, state: SYN_SENT }))
  t.equal(decodeCall(whole, rangeOf(parsePrefix('245.1.0.0/16')), 'unanswered'), undefined, 'another range')
  for (let length = 0; length < whole.length; length += 1)
    t.equal(decodeCall(whole.subarray(0, length), range, 'unanswered'), undefined, `${length} bytes`)
  const asks = (state: 'answered' | 'unanswered'): string =>
    Buffer.concat(encodeCallsRequest({ family: 4 }, state)).toString('hex')
  t.match(asks('unanswered'), /080003000000000008001a0000000002$/)
  t.match(asks('answered'), /080003000000000208001a0000000002$/)
  t.end()
})

t.test('the state of a single entry', (t) => {
  const rows: [name: string, entry: Entry, state: ReturnType<typeof decodeState>][] = [
    ['SYN_SENT', { status: 0, state: 1 }, 'unanswered'],
    ['SYN_RECV', { status: SEEN_REPLY, state: 2 }, 'answered'],
    ['ESTABLISHED', { status: SEEN_REPLY }, 'answered'],
    ['FIN_WAIT', { status: SEEN_REPLY, state: 4 }, 'closing'],
    ['CLOSE_WAIT', { status: SEEN_REPLY, state: 5 }, 'closing'],
    ['LAST_ACK', { status: SEEN_REPLY, state: 6 }, 'closing'],
    ['TIME_WAIT', { status: SEEN_REPLY, state: 7 }, 'closing'],
    ['CLOSE', { status: SEEN_REPLY, state: 8 }, 'closing'],
    ['SYN_SENT2', { status: 0, state: 9 }, 'unanswered'],
    ['UDP', { protocol: UDP, status: SEEN_REPLY, without: 4 }, 'answered'],
    ['UDP without an answer', { protocol: UDP, status: 0, without: 4 }, 'unanswered'],
    ['without a status', { state: 7, without: 3 }, undefined],
  ]
  for (const [name, one, state] of rows) t.equal(decodeState(entry(one)), state, name)
  const whole = entry({ status: SEEN_REPLY })
  for (let length = 0; length < whole.length; length += 1)
    t.not(decodeState(whole.subarray(0, length)), 'closing', `${length} bytes`)
  t.end()
})

/** The id of an entry comes last. */
function withId(data: Buffer): Buffer {
  return Buffer.concat([
    data,
    Buffer.alloc(-data.length & 3),
    ...body(Buffer.alloc(0), [[12, Buffer.from([0, 0, 0, 7])]]),
  ])
}

t.test('asks for what is IPv4 and assured', (t) => {
  t.equal(Buffer.concat(encodeListRequest()).toString('hex'), '020000000800030000000004')
  t.end()
})
