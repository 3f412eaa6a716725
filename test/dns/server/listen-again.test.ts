/** Which failures to listen are waited for. */
import t from 'tap'
import { waitsFor } from '../../../dns/server/listener.ts'

t.test('an address that the node lacks is waited for, and a kernel without IPv6 ends no process', async (t) => {
  const rows: readonly (readonly [code: string, one: boolean, spread: boolean])[] = [
    ['EADDRNOTAVAIL', true, true],
    ['EAFNOSUPPORT', true, true],
    ['EADDRINUSE', false, true],
    ['EACCES', false, false],
  ]
  for (const [code, one, spread] of rows)
    t.same([waitsFor(code, { spread: false }), waitsFor(code, { spread: true })], [one, spread], code)
})
