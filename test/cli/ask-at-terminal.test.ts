/** Questions at a terminal: the answers, and Ctrl-C. */
import { EventEmitter } from 'node:events'
import { PassThrough } from 'node:stream'
import t from 'tap'
import { askAtTerminal } from '../../cli/context/terminal.ts'
import { UserError } from '../../runtime/errors.ts'
import { runProcess } from '../../runtime/run-process.ts'
import { eventually } from '../support/eventually.ts'
import { failure, messageOf } from '../support/failure.ts'

class Keyboard {
  readonly input = Object.assign(new PassThrough(), {
    isTTY: true,
    /** The raw mode of the terminal. */
    raw: false,
    setRawMode(raw: boolean) {
      this.raw = raw
      return this
    },
  })
  readonly output = Object.assign(new PassThrough(), { isTTY: true })
  readonly signals = new EventEmitter()
  said = ''

  constructor() {
    this.output.setEncoding('utf8').on('data', (text: string) => (this.said += text))
  }

  readonly interrupt = (): void => void this.signals.emit('SIGINT')
}

const QUESTION = { why: 'nothing says which pods there are', suggestion: ['10.42.0.0/16', 'fd00::/56'] }
const SHOWN = 'nothing says which pods there are.\nWhich [10.42.0.0/16, fd00::/56]? '
const { signal } = new AbortController()

t.test('what is said, and what is suggested where nothing is', async (t) => {
  const rows: [typed: string, want: readonly string[]][] = [
    ['10.1.0.0/16\r', ['10.1.0.0/16']],
    [' 10.1.0.0/16,10.2.0.0/16  10.3.0.0/16 \r', ['10.1.0.0/16', '10.2.0.0/16', '10.3.0.0/16']],
    ['\r', QUESTION.suggestion],
  ]
  for (const [typed, want] of rows) {
    const keyboard = new Keyboard()
    const answer = askAtTerminal(QUESTION, signal, keyboard)
    await eventually(() => keyboard.said.includes('? '))
    t.equal(keyboard.input.raw, true)
    keyboard.input.write(typed)
    t.same(await answer, want)
    t.equal(keyboard.input.raw, false, 'the terminal is as it was')
    t.ok(keyboard.said.replaceAll('\u001b[1G\u001b[0J', '').startsWith(SHOWN), keyboard.said)
  }
})

t.test('the input ends: no answer is none', async (t) => {
  const keyboard = new Keyboard()
  const failed = failure(askAtTerminal(QUESTION, signal, keyboard))
  await eventually(() => keyboard.said.includes('? '))
  // The byte is Ctrl-D, which ends the input.
  keyboard.input.write('\u0004')
  const error = await failed
  t.equal(error.message, 'nothing says which pods there are, and the question was not answered')
  t.match(error, { hint: 'give the answer as a flag; see: sealane join --help' })
  t.equal(keyboard.input.raw, false, 'the terminal is as it was')
})

t.test('the input ends without a key: the same, at a terminal and without one', async (t) => {
  for (const isTTY of [true, false]) {
    const keyboard = new Keyboard()
    Object.assign(keyboard.output, { isTTY })
    const failed = messageOf(askAtTerminal(QUESTION, signal, keyboard))
    await eventually(() => keyboard.said.includes('? '))
    keyboard.input.end()
    t.equal(await failed, 'nothing says which pods there are, and the question was not answered', `terminal: ${isTTY}`)
  }
})

t.test('Ctrl-C stops the command, as everywhere else; a second one ends it at once', async (t) => {
  const keyboard = new Keyboard()
  const exits: number[] = []
  let complaint = ''
  const done = runProcess(
    'sealane',
    async (stop) => {
      const failed = await messageOf(askAtTerminal(QUESTION, stop, keyboard))
      keyboard.interrupt()
      t.equal(stop.aborted, true)
      throw new UserError(`interrupted before it was complete (${failed})`)
    },
    {
      signals: keyboard.signals,
      exitNow: (code) => void exits.push(code),
      complain: (text) => void (complaint += text),
    },
  )
  await eventually(() => keyboard.said.includes('? '))
  keyboard.input.write('\u0003')
  t.equal(await done, 1)
  process.exitCode = 0
  t.same(exits, [130], 'the second')
  t.equal(complaint, 'sealane: interrupted before it was complete (The operation was aborted)\n')
  t.equal(keyboard.input.raw, false, 'the terminal is as it was')
})
