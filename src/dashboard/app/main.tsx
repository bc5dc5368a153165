import 'uplot/dist/uPlot.min.css';
import './style.css';
import { render } from 'preact';
import { App } from './shell.tsx';

const root = document.getElementById('app');
if (root !== null) render(<App />, root);
