/** Addresses with ports, as people write them and as they are compared. */
import fc from 'fast-check'
import t from 'tap'
import {
  type AddressPortInit,
  formatAddressPort,
  parseAddressPort,
  isListenPlace,
  sameAddressPort,
  sharesListenPort,
} from '../../../model/addresses/address-port.ts'
import { InvalidAddressError, formatAddress } from '../../../model/values/ip.ts'
import { messageOf } from '../../support/failure.ts'

t.test('address and port', async (t) => {
  const read = (text: string, init: AddressPortInit): string => {
    const { address, port } = parseAddressPort(text, 'dns', init)
    return `${formatAddress(address)} ${port}`
  }
  const rows: readonly (readonly [text: string, withPort: string, withDefault: string])[] = [
    ['10.42.0.1:53', '10.42.0.1 53', '10.42.0.1 53'],
    ['[fd00::1]:5353', 'fd00::1 5353', 'fd00::1 5353'],
    ['10.42.0.1', 'address:port', '10.42.0.1 7'],
    ['fd00::1', 'address:port', 'fd00::1 7'],
    ['[fd00::1]', 'address:port', 'fd00::1 7'],
    ['[10.42.0.1]:53', '10.42.0.1 53', '10.42.0.1 53'],
    ['fd00::1:99999', 'address:port', 'an address or address:port'],
    ['dns.example:53', 'address:port', 'an address or address:port'],
    ['', 'address:port', 'an address or address:port'],
    ['[]:53', 'address:port', 'an address or address:port'],
    ['10.42.0.1:', 'a port', 'a port'],
    ['10.42.0.1:0', 'a port', 'a port'],
    ['10.42.0.1:5 3', 'a port', 'a port'],
  ]
  for (const [text, withPort, withDefault] of rows) {
    for (const [init, want] of [[{}, withPort] as const, [{ defaultPort: 7 }, withDefault] as const]) {
      const suffix = want === 'a port' ? ' from 1 to 65535' : ' such as 10.42.0.1:53 or [fd00::1]:53'
      if (/ \d+$/.test(want)) t.equal(read(text, init), want, text)
      else
        t.equal(await messageOf(() => read(text, init)), `dns ${JSON.stringify(text)}: expected ${want}${suffix}`, text)
    }
  }
  t.equal(read('0.0.0.0:0', { allowZero: true }), '0.0.0.0 0')
})

t.test('as text, and the same', async (t) => {
  for (const text of ['10.42.0.1:53', '[fd00::1]:65535']) t.equal(formatAddressPort(parseAddressPort(text)), text)
  const a = parseAddressPort('10.42.0.1:53')
  t.equal(sameAddressPort(a, parseAddressPort('10.42.0.1:53')), true)
  t.equal(sameAddressPort(parseAddressPort('[FD00:0::1]:1'), parseAddressPort('[fd00::1]:1')), true)
  for (const other of ['10.42.0.1:54', '10.42.0.2:53', '[::a2a:1]:53']) {
    t.equal(sameAddressPort(a, parseAddressPort(other)), false, other)
  }
  t.equal(sameAddressPort(a, undefined), false)
  t.equal(sameAddressPort(undefined, undefined), true)
})

t.test('whatever is written, what is thrown says what was expected', async () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      try {
        return sameAddressPort(parseAddressPort(formatAddressPort(parseAddressPort(text))), parseAddressPort(text))
      } catch (error) {
        return error instanceof InvalidAddressError
      }
    }),
  )
})

t.test('which listeners take the same packets, and which places a listener answers', (t) => {
  const at = (text: string) => parseAddressPort(text, 'x', { allowZero: true })
  const rows: [a: string, b: string, shares: boolean, is: boolean][] = [
    ['10.42.0.1:53', '10.42.0.1:53', true, true],
    ['10.42.0.1:53', '10.42.0.1:54', false, false],
    ['10.42.0.1:53', '10.42.0.2:53', false, false],
    ['0.0.0.0:53', '10.42.0.1:53', true, false],
    ['0.0.0.0:53', '127.0.0.53:53', true, true],
    ['0.0.0.0:53', '0.0.0.0:53', true, true],
    ['0.0.0.0:53', '[fd00::1]:53', false, false],
    ['[::]:53', '[fd00::1]:53', true, false],
    ['[::]:53', '[::1]:53', true, true],
    ['[::]:53', '0.0.0.0:53', false, false],
    ['0.0.0.0:0', '127.0.0.1:0', false, true],
  ]
  for (const [a, b, shares, is] of rows) {
    t.equal(sharesListenPort(at(a), at(b)), shares, `${a} ${b}`)
    t.equal(sharesListenPort(at(b), at(a)), shares, `${b} ${a}`)
    t.equal(isListenPlace(at(a), at(b)), is, `${a} answers ${b}`)
  }
  t.end()
})
