/**
 * `steady-caller ADDRESS PORT`: a program for the namespace of a test. It begins a TCP connection every 10 ms, asks once,
 * and prints a line for each: `START ANSWER`, the time in ms and what the server said, or the code of the error.
 */
import { connect } from 'node:net'

const [address = '', port = ''] = process.argv.slice(2)
const TIMEOUT_MS = 1500

setInterval(() => {
  const began = Date.now()
  const say = (answer: string): void => {
    process.stdout.write(`${began} ${answer}\n`)
    socket.destroy()
  }
  const socket = connect({ host: address, port: Number(port) }, () => socket.write('hello\n'))
  socket.setTimeout(TIMEOUT_MS, () => say('ETIMEDOUT'))
  socket.once('data', (data) => say(data.toString().trim()))
  socket.on('error', (error: NodeJS.ErrnoException) => say(error.code ?? 'error'))
}, 10)
