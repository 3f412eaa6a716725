/** Commands beside the broker whose audit line cannot be kept, and the warning that they print. */
import { join } from 'node:path'
import t from 'tap'
import { notedCommand } from '../../../broker/audit/audited-command.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const cases: readonly (readonly [
  say: string,
  run: () => Promise<void>,
  failure: string | undefined,
  warned: RegExp[],
])[] = [
  [
    'worked',
    () => Promise.resolve(),
    undefined,
    [/^the command succeeded, but could not be recorded in the audit log: ./],
  ],
  ['failed', () => Promise.reject(new Error('no room')), 'no room', []],
]
for (const [say, run, failure, warned] of cases) {
  t.test(`a command that ${say} says so, although it cannot be noted`, async (t) => {
    const nowhere = join(temporaryFolder(t), 'not-there', 'broker.db')
    const texts: string[] = []
    const warn = (text: string): void => void texts.push(text)
    const command = { act: 'broker.backup', subject: 'a.backup' } as const
    const ran = notedCommand(
      { clock: new FakeClock(), who: { kind: 'operator' }, database: nowhere, warn },
      command,
      run,
    )
    if (failure === undefined) await ran
    else await t.rejects(ran, { message: failure })
    t.match(texts, warned)
    t.equal(texts.length, warned.length)
  })
}
