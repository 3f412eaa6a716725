import fc from 'fast-check'
import t from 'tap'
import { usualAddress, usualInterfaceAddress, usualPrefix } from '../../../kernel/route/address-text.ts'
import { formatAddress, InvalidAddressError, parseAddress } from '../../../model/values/ip.ts'

t.test('the form in which listings give an address', (t) => {
  const rows: readonly (readonly [string, string])[] = [
    ['10.0.0.1', '10.0.0.1'],
    ['FD53:0:0::1', 'fd53::1'],
    ['fd53::0:1', 'fd53::1'],
    ['fd53:1:2:3:4:5:6::', 'fd53:1:2:3:4:5:6:0'],
    ['1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8'],
    ['::', '::'],
    ['fd53::', 'fd53::'],
  ]
  for (const [text, want] of rows) t.equal(usualAddress(text), want)
  t.equal(usualPrefix('FD53:0::/48'), 'fd53::/48')
  t.equal(usualPrefix('10.42.0.0/16'), '10.42.0.0/16')
  t.equal(usualInterfaceAddress('FD53:0::1/64'), 'fd53::1/64')
  for (const text of ['fd53::1::2', 'fd53:', 'fd53::12345', '1:2:3:4:5:6:7::8:9', 'fd53::%eth0'])
    t.throws(() => usualAddress(text), InvalidAddressError, text)
  t.end()
})

t.test('however an IPv6 address is written', (t) => {
  // Many groups are zero, so that the text has to be shortened.
  const group = fc.oneof(fc.constant(0), fc.constant(0), fc.integer({ min: 0, max: 0xffff }))
  const groups = fc.array(group, { minLength: 8, maxLength: 8 })
  const style = fc.record({
    pad: fc.boolean(),
    upper: fc.boolean(),
    from: fc.nat(7),
    count: fc.integer({ min: 0, max: 8 }),
  })
  fc.assert(
    fc.property(groups, style, (numbers, { pad, upper, from, count }) => {
      const texts = numbers.map((number) => number.toString(16).padStart(pad ? 4 : 1, '0'))
      const zeros = numbers.slice(from, from + count)
      const shortened =
        zeros.length > 0 && zeros.every((number) => number === 0)
          ? `${texts.slice(0, from).join(':')}::${texts.slice(from + count).join(':')}`
          : texts.join(':')
      const text = upper ? shortened.toUpperCase() : shortened
      const value = numbers.reduce((sum, number) => (sum << 16n) | BigInt(number), 0n)
      const usual = formatAddress({ family: 6, value })
      return usualAddress(text) === usual && usualAddress(usual) === usual && parseAddress(usual).value === value
    }),
    { numRuns: 3000 },
  )
  t.end()
})
