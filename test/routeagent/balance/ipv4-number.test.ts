/** The fast parser agrees with model/values/ip.ts on every text. */
import t from 'tap'
import fc from 'fast-check'
import { classifyAddress, containsAddress, formatAddress, parseAddress, prefixOf } from '../../../model/values/ip.ts'
import { inRange, ipv4Number, ipv4Range, isUsableIpv4 } from '../../../routeagent/world/address-family.ts'

const value = fc.oneof(
  fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  fc.constantFrom(0, 127 << 24, 0xa9fe0001, 0xa9ff0001, 0xe0000001, 0xefffffff, 0xf0000000, 2 ** 32 - 2, 2 ** 32 - 1),
)
const address = value.map((n) => ({ family: 4 as const, value: BigInt(n) }))

t.test('numbers of addresses', async () => {
  fc.assert(fc.property(address, (a) => ipv4Number(formatAddress(a)) === Number(a.value)))
})

t.test('usable or not', async () => {
  fc.assert(
    fc.property(address, (a) => isUsableIpv4(Number(a.value)) === (classifyAddress(a) === 'usable')),
    { numRuns: 5000 },
  )
})

t.test('inside a prefix or not', async () => {
  fc.assert(
    fc.property(address, fc.integer({ min: 0, max: 32 }), address, (network, length, a) => {
      const prefix = prefixOf(network, length)
      return inRange(ipv4Range(prefix), Number(a.value)) === containsAddress(prefix, a)
    }),
  )
})

t.test('any other text is no address', async () => {
  const texts = fc.oneof(
    fc.string(),
    fc.stringMatching(/^[0-9.]{0,16}$/),
    fc.constantFrom('1.2.3', '1.2.3.4.5', '01.2.3.4', '1.2.3.256', '1..2.3', '1.2.3.4 ', '::1'),
  )
  fc.assert(
    fc.property(texts, (text) => {
      const number = ipv4Number(text)
      if (number !== undefined) return formatAddress({ family: 4, value: BigInt(number) }) === text
      try {
        return formatAddress(parseAddress(text)) !== text || text.includes(':')
      } catch {
        return true
      }
    }),
    { numRuns: 3000 },
  )
})
