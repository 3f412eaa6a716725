import fc from 'fast-check'
import t from 'tap'
import { isDnsLabel, isDnsSubdomain, isObjectName, parseClusterId, parseDnsLabel, serviceKey } from '../../model/ids.ts'

t.test('labels', async (t) => {
  const good = ['a', '0', 'web', 'web-1', 'a--b', 'x'.repeat(63)]
  const bad = ['', '-', 'a-', '-a', 'A', 'a.b', 'a_b', 'x'.repeat(64), 'a\n', 'ä', ' a', 'a/b', '../x']
  for (const text of good) t.ok(isDnsLabel(text), JSON.stringify(text))
  for (const text of bad) t.notOk(isDnsLabel(text), JSON.stringify(text))
})

t.test('subdomains', async (t) => {
  t.ok(isDnsSubdomain('a.b.c'))
  t.ok(isDnsSubdomain(`${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(61)}`))
  for (const text of ['', '.', 'a.', '.a', 'a..b', 'a.B', `${'a.'.repeat(126)}aa`]) t.notOk(isDnsSubdomain(text), text)
})

t.test('names of objects: longer parts than DNS has', async (t) => {
  for (const text of ['a', 'a.b', 'x'.repeat(70), 'x'.repeat(253), `a.${'x'.repeat(200)}`])
    t.ok(isObjectName(text), text)
  for (const text of ['', '.', 'a..b', 'A', '../x', 'a/b', '-a', 'a-', 'x'.repeat(254)])
    t.notOk(isObjectName(text), text)
})

t.test('refusals name field, value and expectation', async (t) => {
  t.throws(() => parseClusterId('Milano.eu'), {
    name: 'InvalidNameError',
    message: 'cluster id "Milano.eu": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -',
  })
  t.throws(() => parseDnsLabel('', 'namespace'), {
    message: 'namespace "": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -',
  })
  t.throws(() => parseClusterId('x'.repeat(5000)), { message: /^.{350,400}$/ }, 'a huge value is cut')
  t.equal(parseClusterId('milano'), 'milano')
  t.equal(serviceKey('shop', 'web'), 'shop/web')
})

t.test('any text is taken whole or refused', async (t) => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...Array.from('ab0-.A_/\n')), maxLength: 70 }), (text) => {
      const ok = isDnsLabel(text)
      return (
        ok ===
        (text.length >= 1 &&
          text.length <= 63 &&
          /^[ab0-]+$/.test(text) &&
          !text.includes('\n') &&
          !text.startsWith('-') &&
          !text.endsWith('-'))
      )
    }),
    { numRuns: 2000 },
  )
  t.pass()
})
