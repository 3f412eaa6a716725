import fc from 'fast-check'
import t from 'tap'
import { nearName } from '../../model/values/words.ts'

t.test('the name that was meant', (t) => {
  const names = ['status', 'show', 'site', 'gateway', 'uninstall']
  const rows = [
    ['statsu', 'status'],
    ['stats', 'status'],
    ['Gateway', 'gateway'],
    ['gatway', 'gateway'],
    ['unistall', 'uninstall'],
    ['sites', 'site'],
    ['frobnicate', undefined],
    ['x', undefined],
    ['', undefined],
    ['__proto__', undefined],
  ] as const
  for (const [word, want] of rows) t.equal(nearName(word, names), want, word)
  t.equal(nearName('node', []), undefined)
  t.end()
})

t.test('a name is nearest to itself, and any word is answered', () => {
  const names = fc.array(fc.string({ maxLength: 12 }), { minLength: 1, maxLength: 8 })
  fc.assert(
    fc.property(names, fc.string({ maxLength: 40 }), (all, word) => {
      const [first = ''] = all
      const found = nearName(word, all)
      const itself = nearName(first, all)?.toLowerCase()
      return (found === undefined || all.includes(found)) && (first === '' || itself === first.toLowerCase())
    }),
  )
  return Promise.resolve()
})
