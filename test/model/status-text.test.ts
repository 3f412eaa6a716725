import t from 'tap'
import { fitText } from '../../model/status-text.ts'

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
