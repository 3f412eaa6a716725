/**
 * Stays in a network namespace and runs the command line there as often as it is told to: a line of standard input is the
 * arguments as JSON, and a line of standard output is what came of them. Starting Node anew for each would take a second.
 */
import { createInterface } from 'node:readline'
import { runCli } from '../../cli/run-cli.ts'

for await (const line of createInterface({ input: process.stdin })) {
  const result = await runCli(JSON.parse(line) as readonly string[])
  process.stdout.write(`${JSON.stringify(result)}\n`)
}
