import fc from 'fast-check'
import t from 'tap'
import { renderTable } from '../../cli/context/output.ts'

const columns = ['A', 'LONGER', 'N'].map((title, i) => ({
  title,
  cell: (row: readonly string[]) => row[i] ?? '',
  ...(title === 'N' ? { align: 'right' as const } : {}),
}))

t.test('a table', (t) => {
  const rows = [
    ['milano', 'x', '1'],
    ['p', '', '1000'],
  ]
  t.equal(
    renderTable(columns, rows),
    `A       LONGER     N
milano  x          1
p               1000
`,
  )
  t.equal(renderTable(columns, []), 'A  LONGER  N\n')
  t.end()
})

const word = fc.stringMatching(/^[!-~]{1,12}$/)

t.test('any cells: one line for each row, columns where the heading says, nothing lost', (t) => {
  fc.assert(
    fc.property(fc.array(fc.tuple(word, word, word)), (rows) => {
      const [heading = '', ...lines] = renderTable(columns, rows).split('\n').slice(0, -1)
      if (lines.length !== rows.length) return false
      const second = heading.indexOf('LONGER')
      return rows.every(([a, b, c], i) => {
        const line = lines[i] ?? ''
        return line.startsWith(`${a} `) && line.startsWith(`${b} `, second) && line.endsWith(` ${c}`)
      })
    }),
  )
  t.end()
})

t.test('nothing in a cell can steer the terminal, break a line or reverse the text', (t) => {
  fc.assert(
    fc.property(fc.array(fc.array(fc.string({ unit: 'binary' }), { minLength: 3, maxLength: 3 })), (rows) => {
      const text = renderTable(columns, rows)
      return (
        text.split('\n').length === rows.length + 2 &&
        !/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028-\u202e]/.test(text)
      )
    }),
  )
  t.equal(renderTable([{ title: 'X', cell: (text: string) => text }], ['a\u001b[31mb\nc\u202ed']), 'X\na?[31mb?c?d\n')
  t.end()
})
