import t from 'tap'
import { fitText, forTerminal, jsonForTerminal } from '../../model/conditions.ts'

t.test('texts that fit', (t) => {
  const rows: readonly (readonly [text: string, max: number, want: string])[] = [
    ['', 1, ''],
    ['four', 4, 'four'],
    ['fives', 4, 'fiv…'],
    ['ab', 1, '…'],
    ['ab😀c', 4, 'ab…'],
    ['ab😀cd', 5, 'ab😀…'],
  ]
  for (const [text, max, want] of rows) {
    t.equal(fitText(text, max), want, `${text} in ${max}`)
    t.ok(fitText(text, max).isWellFormed())
  }
  t.end()
})

t.test('whole texts keep their lines, and steer no terminal', (t) => {
  const rows: [string, string][] = [
    ['a\n\tb\n', 'a\n\tb\n'],
    ['Zürich – 東京 ✓', 'Zürich – 東京 ✓'],
    ['\u001b[2J\u001b]0;title\u0007', '?[2J?]0;title?'],
    ['\u009b31m \u0085 \u007f', '?31m ? ?'],
    ['a\rb\bc\u0000\u000b\u000c', 'a?b?c???'],
    ['\u202eevil\u2066 \u2069\u200f\u061c', '?evil? ???'],
    ['a\u2028b\u2029', 'a?b?'],
    ['\ud800', '?'],
  ]
  for (const [text, want] of rows) {
    t.equal(forTerminal(text), want, want)
    const json = jsonForTerminal(JSON.stringify({ text }, undefined, 2))
    t.same(JSON.parse(json), { text }, 'JSON still says the same')
    t.equal(forTerminal(json), json)
  }
  t.end()
})
