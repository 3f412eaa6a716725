/** Relays of the broker's flags and those that operators have added: one list, each host once. */
import fc from 'fast-check'
import t from 'tap'
import { MAX_RELAYS, mergedRelays, readRelayAddress, relayConflict, relayName } from '../../../model/lanes/lanes.ts'

const PIN = 'a'.repeat(64)
const [A, B] = ['wss://a.example/', 'wss://b.example/']

t.test('what counts of two lists', (t) => {
  const rows: readonly [flagged: string[], added: string[], want: string[]][] = [
    [[], [], []],
    [[A], [B], [A, B]],
    [[A], [A, B], [A, B]],
    [[A], [`${A}#${PIN}`], [A]],
    [[A], ['no relay'], [A]],
    [[], [B, `${B}x`], [B]],
  ]
  for (const [flagged, added, want] of rows)
    t.same(mergedRelays(flagged, added), want, `${flagged.join()} ${added.join()}`)
  t.same(relayConflict([A], [B, `${A}#${PIN}`]), { flagged: A, added: `${A}#${PIN}` })
  t.equal(relayConflict([A], [A, B]), undefined)
  const long = `wss://${'a'.repeat(60)}.${'b'.repeat(40)}.`
  t.equal(relayConflict([`${long}one/`], [`${long}two/`]), undefined, 'hosts that differ late')
  t.same(mergedRelays([`${long}one/`], [`${long}two/`]), [`${long}one/`, `${long}two/`])
  t.equal(relayConflict(['wss://a.example:443/'], [A])?.added, A, 'one name written in two forms')
  t.end()
})

t.test('different hosts have different names, that fit', (t) => {
  const host = fc.integer({ min: 1, max: 250 }).chain((length) => fc.string({ minLength: length, maxLength: length }))
  fc.assert(
    fc.property(host, host, (one, other) => {
      const names = [relayName({ host: one }), relayName({ host: other })]
      return (names[0] === names[1]) === (one === other) && names.every((name) => name.length <= 63)
    }),
  )
  const alike = ['x', 'y'].map((end) => relayName({ host: `${'a'.repeat(80)}${end}` }))
  t.not(alike[0], alike[1])
  t.equal(relayName({ host: 'a'.repeat(55) }), `tcp-443 ${'a'.repeat(55)}`, 'one that fits is as it is')
  t.end()
})

t.test('no host of added relays counts twice, and there are never too many', (t) => {
  const address = fc.constantFrom(A, B, `${A}#${PIN}`, 'wss://c.example:8443/', 'wss://d.example/x', 'nothing')
  const list = fc.array(address, { maxLength: 8 })
  fc.assert(
    fc.property(list, list, (flagged, added) => {
      const all = mergedRelays(flagged, added)
      const hosts = all.slice(flagged.length).map((text) => readRelayAddress(text)?.host)
      const known = new Set(flagged.map((text) => readRelayAddress(text)?.host))
      return all.length <= MAX_RELAYS && new Set(hosts).size === hosts.length && !hosts.some((one) => known.has(one))
    }),
  )
  t.end()
})
