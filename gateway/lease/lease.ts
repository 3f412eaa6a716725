/** Decides which node holds a lane number, and hands it over. */
export { runLabelledGateway } from './labelled-gateway.ts'
