/** The zone clusterset.local: from objects to answers. */
export { answer, isTransfer } from './answer.ts'
export { compileAnswer } from './compile.ts'
export { KeptAnswers } from './kept-answers.ts'
export { ServiceIndex } from './service-index.ts'
export { printZone } from './zone-text.ts'
