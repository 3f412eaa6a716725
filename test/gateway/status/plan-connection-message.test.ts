/** The message for a connection that is not up. */
import t from 'tap'
import { HeardLinks } from '../../../gateway/health/link-traffic.ts'
import type { LinkState } from '../../../gateway/cable/cable-driver.ts'
import type { ConnectionCause } from '../../../model/objects.ts'
import { type ConnectionMessageInit, connectionTrouble } from '../../../gateway/status/plan-status.ts'
import { parseAddressPort } from '../../../model/addresses/address-port.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const link = (change: Partial<LinkState> = {}): LinkState => ({ carries: true, rxBytes: 0, txBytes: 148, ...change })
const TRY = { how: 'try', at: parseAddressPort('203.0.113.9:4500'), why: 'public address, candidate 1 of 2' } as const
const KEEP = {
  how: 'keep',
  at: parseAddressPort('203.0.113.9:61000'),
  why: 'the remote gateway answered there before',
} as const
const WAIT = {
  how: 'wait',
  why: 'the remote gateway publishes no candidates; it must connect to this gateway',
} as const
const shaken = { at: parseAddressPort('203.0.113.9:61000') }

const rows: readonly (readonly [string, Partial<ConnectionMessageInit>, string, ConnectionCause?])[] = [
  [
    'never heard',
    { state: 'connecting', forMs: 12_000, choice: TRY, link: link() },
    'no handshake yet: this gateway sends to UDP 203.0.113.9:4500 and receives nothing: open UDP 4500 at the other gateway (public address, candidate 1 of 2)',
  ],
  [
    'with a doubt',
    {
      state: 'connecting',
      choice: TRY,
      link: link(),
      suspicion: { text: 'its other address is seen of two', cause: 'NeitherCallable' },
    },
    'no handshake yet: this gateway sends to UDP 203.0.113.9:4500 and receives nothing: open UDP 4500 at the other gateway (public address, candidate 1 of 2); its other address is seen of two',
    'NeitherCallable',
  ],
  [
    'not sent yet',
    { state: 'connecting', choice: TRY, link: undefined },
    'no handshake yet: this gateway starts to send to UDP 203.0.113.9:4500 and receives nothing: open UDP 4500 at the other gateway (public address, candidate 1 of 2)',
  ],
  [
    'an IPv6 address',
    { state: 'connecting', choice: { ...TRY, at: parseAddressPort('[2001:db8::9]:4501') }, link: link() },
    'no handshake yet: this gateway sends to UDP [2001:db8::9]:4501 and receives nothing: open UDP 4501 at the other gateway (public address, candidate 1 of 2)',
  ],
  [
    'it calls us, and nothing came',
    { state: 'connecting', choice: WAIT, link: link({ txBytes: 0 }) },
    'no handshake yet: this gateway has no address to send to, and nothing received: open UDP 4500 here, so that the remote gateway can connect (the remote gateway publishes no candidates; it must connect to this gateway)',
  ],
  [
    'it called us once',
    { state: 'down', forMs: 9000, heardMs: 10_000, choice: WAIT, link: link(), handshakeAgeMs: 70_000 },
    'no answer to probes since 9 s: this gateway has no address to send to, and nothing received for 10 s: open UDP 4500 here, so that the remote gateway can connect (the remote gateway publishes no candidates; it must connect to this gateway)',
  ],
  [
    'it went silent',
    { state: 'down', forMs: 12_900, heardMs: 13_000, choice: KEEP, link: link(shaken), handshakeAgeMs: 61_400 },
    'no answer to probes since 12 s: this gateway sends to UDP 203.0.113.9:61000 and receives nothing (last packet 13 s ago, last handshake 61 s ago): open UDP 61000 at the other gateway (the remote gateway answered there before)',
  ],
  [
    'one way, and the session still counts',
    { state: 'down', forMs: 12_000, heardMs: 900, choice: KEEP, link: link(shaken), handshakeAgeMs: 61_400 },
    'no answer to probes since 12 s: packets arrive from UDP 203.0.113.9:61000, but no answers to ours: allow UDP 4500 in here and UDP 61000 in at the other gateway, or check whether that gateway hangs (the remote gateway answered there before)',
    'NoneAnswers',
  ],
  [
    'one way, for long',
    {
      state: 'down',
      forMs: 300_000,
      heardMs: 900,
      choice: TRY,
      link: link(shaken),
      handshakeAgeMs: 300_000,
    },
    'no answer to probes since 300 s: packets arrive from UDP 203.0.113.9:61000, but our answers do not arrive there: allow UDP 4500 out of this node and UDP 4500 into the other node (public address, candidate 1 of 2)',
    'AnswersLost',
  ],
]

t.test('messages', (t) => {
  for (const [name, change, message, cause] of rows) {
    const init = {
      state: 'connecting',
      choice: TRY,
      link: undefined,
      listenPort: 4500,
      ...change,
      sessionMs: 180_000,
    } as const
    t.strictSame(connectionTrouble(init), { message, ...(cause === undefined ? {} : { cause }) }, name)
  }
  t.end()
})

t.test('when a far end was heard', async (t) => {
  const clock = new FakeClock()
  const heard = new HeardLinks(clock)
  const look = (...bytes: readonly number[]): void => {
    const links = bytes.map((rxBytes, i) => [`k${i}`, link({ rxBytes })] as const)
    heard.look([{ identity: 'own', links: new Map(links) }])
  }
  const all = (): readonly (number | undefined)[] => ['k0', 'k1', 'k2'].map((key) => heard.heardMs(key))
  look(500, 0, 7)
  t.strictSame(all(), [undefined, undefined, undefined], 'what came before the first look is of no known time')
  await clock.advance(2000)
  look(500, 148, 7)
  t.strictSame(all(), [undefined, 0, undefined])
  await clock.advance(2000)
  look(600, 0, 7)
  t.strictSame(all(), [0, 2000, undefined], 'a link that was made anew was heard when it was')
  await clock.advance(2000)
  look(600, 92)
  t.strictSame(all(), [2000, 0, undefined])
  look()
  t.strictSame(all(), [undefined, undefined, undefined], 'links that are gone are forgotten')
})
