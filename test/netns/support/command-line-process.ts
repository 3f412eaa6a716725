/**
 * Stays in a network namespace and runs the command line there on request: a line of standard input has the arguments
 * as JSON, and a line of standard output has the result. A new Node process for each command would take a second.
 */
import { createInterface } from 'node:readline'
import { runCli } from '../../cli/run-cli.ts'

for await (const line of createInterface({ input: process.stdin })) {
  const result = await runCli(JSON.parse(line) as readonly string[])
  process.stdout.write(`${JSON.stringify(result)}\n`)
}
